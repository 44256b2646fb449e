//! Requests on the unix socket with an `:authority` of any kind.
//!
//! gRPC-core sends the percent-encoded path of the socket, other clients the path itself or nothing.
//! None of these is the authority of a URI, and the HTTP/2 implementation resets such a stream. On a
//! unix socket the value means nothing, so it is replaced before HTTP/2 sees it. Everything else
//! passes as it is; malformed input is left to HTTP/2 to refuse.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::serve::HEADER_BYTES;

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD: usize = 9;
/// The largest frame that HTTP/2 accepts here.
const MAX_FRAME: usize = 16 << 10;
const READ_BYTES: usize = 8 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x01;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

/// The index of `:authority` with an empty value in the static table of HPACK.
const AUTHORITY_INDEX: usize = 1;
const AUTHORITY: &[u8] = b":authority";
/// A value of one byte. It must not be longer than the one it replaces: the entries of the peer's
/// dynamic table would otherwise outlive ours, and its indexes would name others.
const REPLACEMENT: [u8; 2] = [1, b'n'];

/// A connection whose requests have a valid `:authority`.
#[derive(Debug)]
pub struct AnyAuthority<S> {
    inner: S,
    rewriter: Rewriter,
    ready: Vec<u8>,
    given: usize,
}

impl<S> AnyAuthority<S> {
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            rewriter: Rewriter::default(),
            ready: Vec::new(),
            given: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnyAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.given == this.ready.len() {
            this.ready.clear();
            this.given = 0;
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.inner).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => this.rewriter.feed(read.filled(), &mut this.ready),
                other => return other,
            }
        }
        let rest = &this.ready[this.given..];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        this.given += taken;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Returns the bytes of a client as HTTP/2 sees them, fed in pieces of this size; for fuzzing.
pub fn rewritten(bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut rewriter = Rewriter::default();
    let mut out = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        rewriter.feed(piece, &mut out);
    }
    out
}

/// Rewrites the bytes of a client, however they are cut.
#[derive(Debug)]
struct Rewriter {
    /// Bytes to pass before the next frame: the preface, or the rest of a frame.
    pass: usize,
    /// A frame that is not complete yet.
    frame: Vec<u8>,
    /// The headers of a request whose last frame has not come yet.
    block: Option<Block>,
    /// True once the client has broken the rules: HTTP/2 sees the rest as it comes.
    broken: bool,
}

#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    end_stream: u8,
    fragment: Vec<u8>,
}

impl Default for Rewriter {
    fn default() -> Self {
        Self {
            pass: PREFACE_BYTES,
            frame: Vec::new(),
            block: None,
            broken: false,
        }
    }
}

impl Rewriter {
    fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.broken {
                out.extend_from_slice(bytes);
                return;
            }
            if self.pass > 0 {
                let taken = bytes.len().min(self.pass);
                out.extend_from_slice(&bytes[..taken]);
                self.pass -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let wanted = match self.frame.first_chunk::<FRAME_HEAD>() {
                None => FRAME_HEAD,
                Some(head) => FRAME_HEAD + length(head),
            };
            let taken = bytes.len().min(wanted - self.frame.len());
            self.frame.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.advance(out);
        }
    }

    /// Looks at the frame as far as it has come.
    fn advance(&mut self, out: &mut Vec<u8>) {
        let Some(head) = self.frame.first_chunk::<FRAME_HEAD>().copied() else {
            return;
        };
        let (kind, flags, length) = (head[3], head[4], length(&head));
        let stream = [head[5], head[6], head[7], head[8]];
        let expected = match &self.block {
            None => kind != CONTINUATION,
            Some(block) => kind == CONTINUATION && block.stream == stream,
        };
        if !expected || length > MAX_FRAME {
            self.give_up(out);
        } else if kind != HEADERS && kind != CONTINUATION {
            out.append(&mut self.frame);
            self.pass = length;
        } else if self.frame.len() == FRAME_HEAD + length {
            let frame = std::mem::take(&mut self.frame);
            match fragment(&frame[FRAME_HEAD..], kind, flags) {
                Some(fragment) => self.add(stream, flags, fragment, out),
                None => {
                    self.frame = frame;
                    self.give_up(out);
                }
            }
        }
    }

    fn add(&mut self, stream: [u8; 4], flags: u8, fragment: &[u8], out: &mut Vec<u8>) {
        let block = self.block.get_or_insert_with(|| Block {
            stream,
            end_stream: flags & END_STREAM,
            fragment: Vec::new(),
        });
        block.fragment.extend_from_slice(fragment);
        if flags & END_HEADERS != 0 {
            if let Some(mut block) = self.block.take() {
                if let Some(rewritten) = rewrite(&block.fragment) {
                    block.fragment = rewritten;
                }
                block.write(END_HEADERS, out);
            }
        } else if block.fragment.len() > HEADER_BYTES as usize {
            self.give_up(out);
        }
    }

    /// Passes on what has been held back, as it came.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        if let Some(block) = self.block.take() {
            block.write(0, out);
        }
        out.append(&mut self.frame);
        self.broken = true;
    }
}

impl Block {
    /// Writes the block as frames; the last one gets `last_flags`.
    fn write(&self, last_flags: u8, out: &mut Vec<u8>) {
        let count = self.fragment.len().div_ceil(MAX_FRAME).max(1);
        for number in 0..count {
            let rest = &self.fragment[number * MAX_FRAME..];
            let piece = &rest[..rest.len().min(MAX_FRAME)];
            let (kind, mut flags) = match number {
                0 => (HEADERS, self.end_stream),
                _ => (CONTINUATION, 0),
            };
            if number + 1 == count {
                flags |= last_flags;
            }
            let length = u32::try_from(piece.len()).unwrap_or(0).to_be_bytes();
            out.extend_from_slice(&length[1..]);
            out.extend_from_slice(&[kind, flags]);
            out.extend_from_slice(&self.stream);
            out.extend_from_slice(piece);
        }
    }
}

fn length(head: &[u8; FRAME_HEAD]) -> usize {
    usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])
}

/// Returns the part of a payload that is a header block, without padding and priority.
fn fragment(payload: &[u8], kind: u8, flags: u8) -> Option<&[u8]> {
    if kind == CONTINUATION {
        return Some(payload);
    }
    let (mut rest, mut padding) = (payload, 0);
    if flags & PADDED != 0 {
        let (first, after) = payload.split_first()?;
        (rest, padding) = (after, usize::from(*first));
    }
    if flags & PRIORITY != 0 {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

/// Returns the header block with every `:authority` replaced; `None` if it is malformed.
fn rewrite(block: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(block.len());
    let mut rest = block;
    while let Some(&first) = rest.first() {
        let whole = rest;
        if first & 0x80 != 0 {
            let index = integer(&mut rest, 7)?;
            // Empty, and in no dynamic table: it can be left out.
            if index != AUTHORITY_INDEX {
                out.extend_from_slice(&whole[..whole.len() - rest.len()]);
            }
            continue;
        }
        if first & 0xe0 == 0x20 {
            integer(&mut rest, 5)?;
            out.extend_from_slice(&whole[..whole.len() - rest.len()]);
            continue;
        }
        let is_indexed = first & 0x40 != 0;
        let index = integer(&mut rest, if is_indexed { 6 } else { 4 })?;
        let is_authority = match index {
            0 => text(&mut rest)? == (AUTHORITY, false),
            index => index == AUTHORITY_INDEX,
        };
        let name = &whole[..whole.len() - rest.len()];
        let at_value = rest;
        let (value, _) = text(&mut rest)?;
        let replaceable = is_authority && !value.is_empty();
        if is_authority && value.is_empty() && !is_indexed {
            continue;
        }
        out.extend_from_slice(name);
        if replaceable {
            out.extend_from_slice(&REPLACEMENT);
        } else {
            out.extend_from_slice(&at_value[..at_value.len() - rest.len()]);
        }
    }
    Some(out)
}

/// Reads an integer of HPACK with a prefix of so many bits.
fn integer(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, mut after) = rest.split_first()?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value == most {
        for shift in [0, 7, 14, 21] {
            let (&byte, left) = after.split_first()?;
            after = left;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *rest = after;
                return Some(value);
            }
        }
        return None;
    }
    *rest = after;
    Some(value)
}

/// Reads a string: its bytes, and whether they are in Huffman code.
fn text<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let is_huffman = *rest.first()? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((value, is_huffman))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    /// `:method POST`, this representation, and `:path /`.
    fn around(authority: &[u8]) -> Vec<u8> {
        [&[0x83][..], authority, &[0x84]].concat()
    }

    #[test]
    fn an_authority_is_replaced_in_every_representation() {
        let replaced = |first: u8| around(&[first, 1, b'n']);
        for (given, wanted) in [
            // With and without indexing, and never indexed, by the static name.
            (around(b"\x41\x0b%2Frun%2Fs/"), replaced(0x41)),
            (around(b"\x01\x0b%2Frun%2Fs/"), replaced(0x01)),
            (around(b"\x11\x0b%2Frun%2Fs/"), replaced(0x11)),
            // In Huffman code.
            (around(b"\x41\x82\xff\xff"), replaced(0x41)),
            // By its name.
            (
                around(b"\x40\x0a:authority\x02/x"),
                around(b"\x40\x0a:authority\x01n"),
            ),
            // Empty ones are left out.
            (around(b"\x81"), around(b"")),
            (around(b"\x01\x00"), around(b"")),
            // Other headers and a new table size stay.
            (around(b"\x20\x44\x02/x"), around(b"\x20\x44\x02/x")),
        ] {
            assert_eq!(rewrite(&given).unwrap(), wanted, "{given:x?}");
        }
    }

    #[test]
    fn padding_priority_and_continuations_are_put_together() {
        let block = around(b"\x41\x03/x/");
        let mut padded = vec![2];
        padded.extend_from_slice(&[0, 0, 0, 0, 16]);
        padded.extend_from_slice(&block[..3]);
        padded.extend_from_slice(&[0, 0]);
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(HEADERS, PADDED | PRIORITY | END_STREAM, &padded));
        bytes.extend(frame(CONTINUATION, END_HEADERS, &block[3..]));
        bytes.extend(frame(0, 0, b"data"));
        let mut wanted = PREFACE.to_vec();
        let expected = around(&[0x41, 1, b'n']);
        wanted.extend(frame(HEADERS, END_STREAM | END_HEADERS, &expected));
        wanted.extend(frame(0, 0, b"data"));
        for piece in [1, 2, 7, 1000] {
            assert_eq!(rewritten(&bytes, piece), wanted);
        }
    }

    #[test]
    fn a_large_block_is_written_as_several_frames() {
        let value = vec![b'x'; 40_000];
        let mut block = vec![0x00, 1, b'a'];
        // 127 and the rest in groups of seven bits.
        block.extend_from_slice(&[0x7f, 0xc1, 0xb7, 0x02]);
        block.extend_from_slice(&value);
        let mut bytes = PREFACE.to_vec();
        let pieces: Vec<_> = block.chunks(MAX_FRAME).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let last = number + 1 == pieces.len();
            bytes.extend(frame(kind, if last { END_HEADERS } else { 0 }, piece));
        }
        assert!(rewrite(&block).is_some());
        assert_eq!(rewritten(&bytes, 999), bytes);
    }

    #[test]
    fn what_breaks_the_rules_passes_unchanged() {
        for broken in [
            frame(CONTINUATION, 0, b"x"),
            frame(HEADERS, PADDED, &[200, 1]),
            [frame(HEADERS, 0, b"\x41"), frame(0, 0, b"data")].concat(),
            frame(HEADERS, END_HEADERS, b"\x41\x7f\xff\xff\xff\xff\xff"),
            frame(0, 0, &[0; MAX_FRAME + 1]),
        ] {
            let bytes = [&PREFACE[..], &broken, b"and so on, for ever"].concat();
            assert_eq!(rewritten(&bytes, 3), bytes, "{broken:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_and_pieces_do_not_matter(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            piece in 1..50_usize,
        ) {
            let bytes = [&PREFACE[..], &bytes].concat();
            prop_assert_eq!(rewritten(&bytes, piece), rewritten(&bytes, bytes.len()));
        }

        #[test]
        fn no_header_block_causes_a_panic(block in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(rewritten) = rewrite(&block) {
                prop_assert!(rewritten.len() <= block.len());
                // What is rewritten once stays.
                let again = rewrite(&rewritten);
                prop_assert_eq!(again.as_ref(), Some(&rewritten));
            }
        }
    }
}
