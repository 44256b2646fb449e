//! A merged message in pieces: it is sent as it is, without a copy of the whole, and each piece is
//! released when it has been sent.

use bytes::Bytes;

use crate::frames::HEAD;
use crate::quota::Charge;

/// Smaller pieces are joined: each becomes a frame of its own.
const JOIN_BYTES: usize = 64 << 10;

/// The body of a message without its frame header.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    length: usize,
}

/// Bytes and the memory they count for, released together.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    memory: Option<Charge>,
}

impl Chunks {
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>, memory: Option<Charge>) {
        self.length += bytes.len();
        match self.chunks.last_mut() {
            Some(last) if last.bytes.len() + bytes.len() <= JOIN_BYTES => {
                last.bytes.extend_from_slice(&bytes);
                match (&mut last.memory, memory) {
                    (Some(own), Some(other)) => own.absorb(other),
                    (own @ None, other) => *own = other,
                    (Some(_), None) => {}
                }
            }
            _ => self.chunks.push(Chunk { bytes, memory }),
        }
    }

    /// Returns the message with its frame header, piece by piece.
    pub(crate) fn into_frames(self) -> impl Iterator<Item = Bytes> + Send {
        // Bounded by the largest message.
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let mut head = [0; HEAD];
        head[1..].copy_from_slice(&length.to_be_bytes());
        let head = Bytes::copy_from_slice(&head);
        std::iter::once(head).chain(self.chunks.into_iter().map(Chunk::into_bytes))
    }
}

impl Chunk {
    pub(crate) fn new(bytes: Vec<u8>, memory: Charge) -> Self {
        Self {
            bytes,
            memory: Some(memory),
        }
    }

    /// Returns the bytes; their memory is released when the last reference to them is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
