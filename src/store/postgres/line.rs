//! The bytes of one connection, and what goes by of which the driver does not tell.
//!
//! It hides the tag of a command: a COMMIT that the server answered with ROLLBACK looks like success.
//! And it hides whether there is a transaction. So the bytes are listened to on their way in, below the driver and above TLS.
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

/// One of the three kinds of stream that a server is spoken to on.
pub enum Wire {
    /// TCP in the clear.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// TLS on TCP.
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// A stream that is listened to.
pub struct Line {
    wire: Wire,
    /// What SCRAM binds to.
    end_point: Option<Vec<u8>>,
    tap: Arc<Mutex<Tap>>,
}

impl Line {
    /// Listens to `wire`, from its first message of the server on.
    #[must_use]
    pub fn new(wire: Wire, end_point: Option<Vec<u8>>) -> (Self, Arc<Mutex<Tap>>) {
        let tap = Arc::new(Mutex::new(Tap::default()));
        (Self { wire, end_point, tap: Arc::clone(&tap) }, tap)
    }
}

/// Longest tag that is kept; longer ones are no transaction's.
const TAG_BYTES: usize = 32;

/// Finds the tags in the stream of messages: a kind, a length of four bytes, a body.
#[derive(Debug, Default)]
pub struct Tap {
    head: Vec<u8>,
    left: usize,
    body: Vec<u8>,
    tag: Option<String>,
    status: Option<u8>,
}

impl Tap {
    /// The tag of the last command that ended, and forgets it.
    pub fn take_tag(&mut self) -> Option<String> {
        self.tag.take()
    }

    /// Whether the server said, at the end of its last answer, that it is in a transaction that has
    /// not failed.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status == Some(b'T')
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.head.len() < 5 {
                self.head.push(*first);
                bytes = rest;
                if let [_, a, b, c, d] = self.head[..] {
                    let length = u32::from_be_bytes([a, b, c, d]);
                    self.left = usize::try_from(length.saturating_sub(4)).unwrap_or(usize::MAX);
                    self.body.clear();
                    self.ended();
                }
                continue;
            }
            let (body, rest) = bytes.split_at(self.left.min(bytes.len()));
            if matches!(self.head.first(), Some(b'C' | b'Z')) {
                let room = TAG_BYTES.saturating_sub(self.body.len());
                self.body.extend(body.iter().take(room));
            }
            self.left -= body.len();
            bytes = rest;
            self.ended();
        }
    }

    fn ended(&mut self) {
        if self.left > 0 {
            return;
        }
        if self.head.first() == Some(&b'C') {
            let tag = self.body.strip_suffix(&[0]).unwrap_or(&self.body);
            self.tag = Some(String::from_utf8_lossy(tag).into_owned());
        }
        if self.head.first() == Some(&b'Z') {
            self.status = self.body.first().copied();
        }
        self.head.clear();
    }
}

macro_rules! on {
    ($line:expr, $stream:ident => $call:expr) => {
        match &mut $line.get_mut().wire {
            Wire::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Wire::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Wire::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = on!(self.as_mut(), stream => stream.poll_read(context, into));
        if let Some(fresh) = into.filled().get(before..) {
            self.tap.lock().unwrap_or_else(PoisonError::into_inner).hear(fresh);
        }
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, stream => stream.poll_shutdown(context))
    }
}

impl TlsStream for Line {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point
            .clone()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

#[cfg(test)]
mod tests {
    use super::Tap;

    #[test]
    fn a_tag_is_heard_however_the_bytes_are_cut() {
        let stream = b"Z\0\0\0\x05IC\0\0\0\x0dROLLBACK\0n\0\0\0\x04Z\0\0\0\x05I";
        for size in 1..=stream.len() {
            let mut tap = Tap::default();
            for piece in stream.chunks(size) {
                tap.hear(piece);
            }
            assert_eq!(tap.take_tag().as_deref(), Some("ROLLBACK"), "in pieces of {size}");
            assert_eq!(tap.take_tag(), None);
            assert!(!tap.in_transaction());
            tap.hear(b"Z\0\0\0\x05T");
            assert!(tap.in_transaction(), "in pieces of {size}");
        }
    }
}
