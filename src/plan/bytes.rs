//! Bytes within JSON: as base64, since output need not be text.
use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes bytes as one base64 string.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

/// Reads them back.
///
/// # Errors
/// The deserializer's, or what is no base64.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Held(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn bytes_come_back_as_they_were_whatever_they_are() {
        for bytes in [&b""[..], b"a", b"\0\xff\n", &[7; 100]] {
            let text = serde_json::to_string(&Held(bytes.to_vec())).unwrap();
            assert_eq!(serde_json::from_str::<Held>(&text).unwrap().0, bytes, "{text}");
        }
        assert!(serde_json::from_str::<Held>("\"no base64\"").is_err());
    }
}
