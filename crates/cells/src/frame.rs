//! Frames between the daemon, the zygote and the shims: a length, JSON, and file descriptors.
//!
//! All three run as root and trust each other; sizes are bounded all the same.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A command and its environment are at most 1 MiB; escaped as JSON, six times as much.
const MAX_FRAME_BYTES: usize = 8 << 20;
/// More than any message carries.
const MAX_FDS: usize = 32;

/// Sends a message with file descriptors.
pub(crate) fn send<T: Serialize>(
    stream: impl AsFd,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = loop {
        let slices = [IoSlice::new(&frame)];
        match sendmsg(&stream, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    // The file descriptors went with the first part.
    let mut rest = &frame[sent..];
    while !rest.is_empty() {
        match rustix::net::send(&stream, rest, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => rest = &rest[sent?..],
        }
    }
    Ok(())
}

/// A message with the version of its protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Versioned<T> {
    pub(crate) version: u64,
    pub(crate) message: T,
}

/// The version of a message; `None` in one of before versions.
#[derive(Deserialize)]
pub(crate) struct VersionHeader {
    #[serde(default)]
    pub(crate) version: Option<u64>,
}

/// Receives the next message of a protocol version up to `supported`; `None` at EOF.
pub(crate) fn receive_versioned<T: DeserializeOwned>(
    stream: impl AsFd,
    supported: u64,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some((body, fds)) = receive_bytes(stream)? else {
        return Ok(None);
    };
    let header: VersionHeader = serde_json::from_slice(&body)?;
    check_version(header.version.unwrap_or(1), supported)?;
    let versioned: Versioned<T> = serde_json::from_slice(&body)?;
    Ok(Some((versioned.message, fds)))
}

/// Refuses a version that is newer than `supported`.
pub(crate) fn check_version(found: u64, supported: u64) -> io::Result<()> {
    if found <= supported {
        return Ok(());
    }
    let newer = format!(
        "the peer speaks protocol version {found}, this build up to {supported}; upgrade mainstay, or \
         free the cell"
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, newer))
}

/// Receives the body of the next message and its file descriptors; `None` at EOF.
pub(crate) fn receive_bytes(stream: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut slices = [IoSliceMut::new(&mut length)];
        match recvmsg(
            &stream,
            &mut slices,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            got => break got?.bytes,
        }
    };
    if got == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    read_exact(&stream, &mut length[got..])?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    read_exact(&stream, &mut body)?;
    Ok(Some((body, fds)))
}

fn read_exact(stream: impl AsFd, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::io::read(&stream, &mut *into) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => into = &mut into[got?..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_with_its_file_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let text = "x".repeat(1 << 20);
        std::thread::scope(|scope| {
            let message = Versioned {
                version: 1,
                message: &text,
            };
            let fds = [writer.as_fd(), reader.as_fd()];
            scope.spawn(move || send(&one, &message, &fds).unwrap());
            let (got, fds): (String, _) = receive_versioned(&other, 1).unwrap().unwrap();
            assert_eq!((got.len(), fds.len()), (1 << 20, 2));
        });
        assert!(receive_versioned::<String>(&other, 1).unwrap().is_none());
    }

    #[test]
    fn an_invalid_frame_is_an_error() {
        for bytes in [
            &[255, 255, 255, 255, 0][..],
            b"\x02\0\0\0{]",
            b"\x05\0\0\0ab",
            b"\x01",
        ] {
            let (one, other) = UnixStream::pair().unwrap();
            (&one).write_all(bytes).unwrap();
            drop(one);
            assert!(receive_versioned::<String>(&other, 1).is_err(), "{bytes:?}");
        }
    }
    #[test]
    fn a_newer_version_is_refused_before_its_fields_are_read() {
        let (one, other) = UnixStream::pair().unwrap();
        let newer = serde_json::json!({"version": 2, "message": {"unknown": true}});
        send(&one, &newer, &[]).unwrap();
        let error = receive_versioned::<String>(&other, 1).unwrap_err();
        assert!(error.to_string().contains("protocol version 2"), "{error}");
    }
}
