//! What was meant, most likely.

/// The known word that is nearest to `word`, if one is near.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance = |other: &str| strsim::damerau_levenshtein(&lower, &other.to_lowercase());
    let most = (word.chars().count() / 3).max(1);
    let near = known.into_iter().map(|other| (distance(other), other));
    near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        let known = ["refund", "deploy", "Payment ID"];
        assert_eq!(nearest("refnud", known), Some("refund"));
        assert_eq!(nearest("payment_id", known), Some("Payment ID"));
        assert_eq!(nearest("Refund", known), Some("refund"));
        assert_eq!(nearest("backup", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
