//! Messages of an attachment: a connection between daemon and shim that carries the standard input
//! and the terminal of one executable.
//!
//! The connection starts with a request and its reply; see [`super::protocol`]. Then both sides send
//! messages: a kind, the length of the body in four bytes, little-endian, and the body. A message of
//! an unknown kind ends the attachment.

use std::io;

/// The largest data of one message.
pub const MAX_DATA_BYTES: usize = 64 * 1024;
const HEADER_BYTES: usize = 5;
const OFFSET_BYTES: usize = 8;

const STDIN: u8 = 1;
const CLOSE_STDIN: u8 = 2;
const RESIZE: u8 = 3;
const OUTPUT: u8 = 1;
const STDIN_ACCEPTED: u8 = 2;
const ENDED: u8 = 3;
const REPLACED: u8 = 4;

/// A message to the shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DaemonMessage {
    /// Bytes of standard input, of which the first has this offset.
    Stdin {
        offset: u64,
        data: Vec<u8>,
    },
    /// The standard input ends at this offset.
    CloseStdin {
        offset: u64,
    },
    Resize {
        rows: u16,
        columns: u16,
    },
}

/// A message of the shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShimMessage {
    /// Bytes of terminal output, of which the first has this offset. Older ones that were not sent
    /// are lost.
    Output { offset: u64, data: Vec<u8> },
    /// The number of bytes of standard input accepted so far.
    StdinAccepted { total: u64 },
    /// The run has ended, and all output has been sent.
    Ended,
    /// Another attachment has taken over the standard input.
    Replaced,
}

impl DaemonMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Stdin { offset, data } => message(STDIN, &[&offset.to_le_bytes(), data]),
            Self::CloseStdin { offset } => message(CLOSE_STDIN, &[&offset.to_le_bytes()]),
            Self::Resize { rows, columns } => {
                message(RESIZE, &[&rows.to_le_bytes(), &columns.to_le_bytes()])
            }
        }
    }

    /// Takes the first message from `bytes`; `None` if it is not complete.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let Some((kind, body)) = take_body(bytes)? else {
            return Ok(None);
        };
        let message = match kind {
            STDIN => {
                let (offset, data) = split_offset(&body)?;
                let data = data.to_vec();
                Self::Stdin { offset, data }
            }
            CLOSE_STDIN => Self::CloseStdin {
                offset: split_offset(&body)?.0,
            },
            RESIZE => match body.as_slice() {
                [r0, r1, c0, c1] => Self::Resize {
                    rows: u16::from_le_bytes([*r0, *r1]),
                    columns: u16::from_le_bytes([*c0, *c1]),
                },
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some(message))
    }
}

impl ShimMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Output { offset, data } => message(OUTPUT, &[&offset.to_le_bytes(), data]),
            Self::StdinAccepted { total } => message(STDIN_ACCEPTED, &[&total.to_le_bytes()]),
            Self::Ended => message(ENDED, &[]),
            Self::Replaced => message(REPLACED, &[]),
        }
    }

    /// Takes the first message from `bytes`; `None` if it is not complete.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let Some((kind, body)) = take_body(bytes)? else {
            return Ok(None);
        };
        let message = match kind {
            OUTPUT => {
                let (offset, data) = split_offset(&body)?;
                let data = data.to_vec();
                Self::Output { offset, data }
            }
            STDIN_ACCEPTED => Self::StdinAccepted {
                total: split_offset(&body)?.0,
            },
            ENDED => Self::Ended,
            REPLACED => Self::Replaced,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some(message))
    }
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
    bytes.push(kind);
    // At most MAX_DATA_BYTES and an offset.
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Returns whether the first message is complete, or cannot be one.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    bytes
        .split_first_chunk::<HEADER_BYTES>()
        .is_some_and(|([_, length @ ..], rest)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            rest.len() >= length.min(MAX_DATA_BYTES + OFFSET_BYTES)
        })
}

fn take_body(bytes: &mut Vec<u8>) -> io::Result<Option<(u8, Vec<u8>)>> {
    let Some(([kind, length @ ..], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let kind = *kind;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_DATA_BYTES + OFFSET_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if rest.len() < length {
        return Ok(None);
    }
    let body = rest[..length].to_vec();
    bytes.drain(..HEADER_BYTES + length);
    Ok(Some((kind, body)))
}

fn split_offset(body: &[u8]) -> io::Result<(u64, &[u8])> {
    let split = body.split_first_chunk::<OFFSET_BYTES>();
    let (offset, data) = split.ok_or(io::ErrorKind::InvalidData)?;
    Ok((u64::from_le_bytes(*offset), data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_taken_whole_and_in_order() {
        let to_shim = [
            DaemonMessage::Stdin {
                offset: 7,
                data: vec![0; MAX_DATA_BYTES],
            },
            DaemonMessage::CloseStdin { offset: u64::MAX },
            DaemonMessage::Resize {
                rows: 24,
                columns: 80,
            },
        ];
        let mut bytes = Vec::new();
        let mut taken = Vec::new();
        for byte in to_shim.iter().flat_map(DaemonMessage::encode) {
            bytes.push(byte);
            taken.extend(DaemonMessage::take(&mut bytes).unwrap());
        }
        assert_eq!(taken, to_shim);
        let of_shim = [
            ShimMessage::Output {
                offset: 1,
                data: b"x".to_vec(),
            },
            ShimMessage::StdinAccepted { total: 9 },
            ShimMessage::Replaced,
            ShimMessage::Ended,
        ];
        let mut bytes: Vec<u8> = of_shim.iter().flat_map(ShimMessage::encode).collect();
        for message in of_shim {
            assert_eq!(ShimMessage::take(&mut bytes).unwrap(), Some(message));
        }
        assert_eq!(ShimMessage::take(&mut bytes).unwrap(), None);
    }

    #[test]
    fn a_message_that_is_too_long_or_unknown_is_refused() {
        for bad in [
            &[1, 0, 0, 0, 1][..],
            &[9, 0, 0, 0, 0],
            &[3, 1, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0],
        ] {
            assert!(DaemonMessage::take(&mut bad.to_vec()).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn taking_from_any_bytes_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = DaemonMessage::take(&mut bytes.clone());
            let _ = ShimMessage::take(&mut bytes);
        }
    }
}
