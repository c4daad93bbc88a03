//! Messages and streams.
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use super::{Reply, Upstream};

/// A stream to a server.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    pub(super) fn close(&self) {
        // It may be closed already.
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        });
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both sides of one connection.
pub(super) struct Duplex {
    pub(super) client: Stream,
    pub(super) server: Option<Stream>,
}

impl Duplex {
    pub(super) fn half(client: TcpStream) -> Self {
        Self { client: Stream::Tcp(client), server: None }
    }

    pub(super) fn to(client: TcpStream, upstream: &Upstream) -> io::Result<Self> {
        client.set_nodelay(true)?;
        let server = match upstream {
            Upstream::Tcp(addr) => {
                let stream = TcpStream::connect(addr)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Upstream::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Self { client: Stream::Tcp(client), server: Some(server) })
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let server = self.server.as_ref().map(Stream::try_clone).transpose()?;
        Ok(Self { client: self.client.try_clone()?, server })
    }

    pub(super) fn close(&self) {
        self.client.close();
        if let Some(server) = &self.server {
            server.close();
        }
    }
}

/// One message with its kind; kind 0 is the first one of a client, which has none.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Reads a message that has a kind.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        Ok(Self { kind: kind[0], body: body(from)? })
    }

    /// Reads one that has none.
    pub(super) fn first(from: &mut impl Read) -> io::Result<Self> {
        Ok(Self { kind: 0, body: body(from)? })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 5);
        if self.kind != 0 {
            bytes.push(self.kind);
        }
        let length = u32::try_from(self.body.len() + 4).unwrap_or(u32::MAX);
        bytes.extend(length.to_be_bytes());
        bytes.extend(&self.body);
        bytes
    }

    /// The text of a statement: the body of a Query, or the second string of a Parse.
    pub(super) fn statement(&self) -> Option<String> {
        let at = self.statement_at()?;
        let text = self.body.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn statement_at(&self) -> Option<usize> {
        match self.kind {
            b'Q' => Some(0),
            b'P' => Some(self.body.iter().position(|byte| *byte == 0)? + 1),
            _other => None,
        }
    }

    /// The same message with another statement.
    pub(super) fn with_statement(&self, text: &str) -> Self {
        let at = self.statement_at().unwrap_or_default();
        let (before, rest) = self.body.split_at(at);
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let mut body = before.to_vec();
        body.extend(text.as_bytes());
        body.extend(rest.iter().skip(end));
        Self { kind: self.kind, body }
    }
}

fn body(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).saturating_sub(4);
    // What is longer is no message of this protocol.
    if length > 1 << 30 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; usize::try_from(length).unwrap_or_default()];
    from.read_exact(&mut body)?;
    Ok(body)
}

/// Whether one of the statements in `text` starts with one of `words`.
pub(super) fn starts_with(text: &str, words: &[&str]) -> bool {
    text.split(';').any(|statement| {
        let first = statement.split_whitespace().next().unwrap_or_default();
        words.iter().any(|word| word.eq_ignore_ascii_case(first))
    })
}

impl Reply {
    /// Nothing may follow it on the connection.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Error { severity, .. } => severity != "ERROR",
            Self::Tag(_) => false,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::Error { severity, code } => {
                let text = "forged by the fault proxy";
                let body = format!("S{severity}\0V{severity}\0C{code}\0M{text}\0\0");
                Message { kind: b'E', body: body.into_bytes() }.bytes()
            }
            Self::Tag(tag) => Message { kind: b'C', body: format!("{tag}\0").into_bytes() }.bytes(),
        };
        if !self.is_last() {
            bytes.extend(Message { kind: b'Z', body: b"I".to_vec() }.bytes());
        }
        bytes
    }
}
