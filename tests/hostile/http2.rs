//! HTTP/2 by hand: frames as a client that keeps no rules writes them. It never reads.

use mainstay_api::machine::LogsRequest;
use prost::Message;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const INITIAL_WINDOW_SIZE: u16 = 4;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const LARGEST_FRAME: usize = 16 << 10;

/// The beginning of a connection whose client claims to have room for everything.
pub fn opening() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend_from_slice(&LARGEST_WINDOW.to_be_bytes());
    frame(&mut bytes, SETTINGS, 0, 0, &settings);
    let more = LARGEST_WINDOW - 65_535;
    frame(&mut bytes, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
    bytes
}

/// A call of `path` with one message, as the `number`th of its connection.
pub fn call(bytes: &mut Vec<u8>, number: u32, path: &str, message: &[u8]) {
    call_with(bytes, number, path, message, &[]);
}

/// A call with this metadata.
pub fn call_with(
    bytes: &mut Vec<u8>,
    number: u32,
    path: &str,
    message: &[u8],
    metadata: &[(&str, &str)],
) {
    let stream = number * 2 + 1;
    headers(bytes, stream, path, metadata);
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(message);
    frame(bytes, DATA, END_STREAM, stream, &body);
}

/// The head of a call that goes on; gives its stream.
pub fn begin_call(bytes: &mut Vec<u8>, number: u32, path: &str) -> u32 {
    let stream = number * 2 + 1;
    headers(bytes, stream, path, &[]);
    stream
}

/// A part of the body of a call that goes on.
pub fn data(bytes: &mut Vec<u8>, stream: u32, part: &[u8]) {
    frame(bytes, DATA, 0, stream, part);
}

/// A call whose header block is this, with an empty message.
pub fn call_with_block(bytes: &mut Vec<u8>, number: u32, block: &[u8]) {
    let stream = number * 2 + 1;
    frame(bytes, HEADERS, END_HEADERS, stream, block);
    frame(bytes, DATA, END_STREAM, stream, &[0; 5]);
}

/// Asks for all of a log and for everything that will ever be in it.
pub fn follow_log(bytes: &mut Vec<u8>, number: u32, id: &str) {
    let request = LogsRequest {
        id: id.to_owned(),
        follow: true,
        tail_lines: -1,
        ..LogsRequest::default()
    };
    let path = "/machine.MachineService/Logs";
    call(bytes, number, path, &request.encode_to_vec());
}

fn headers(bytes: &mut Vec<u8>, stream: u32, path: &str, metadata: &[(&str, &str)]) {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "node"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    .iter()
    .chain(metadata)
    {
        // A literal that is not remembered, with neither side in Huffman's code.
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    let mut pieces = block.chunks(LARGEST_FRAME).peekable();
    let mut kind = HEADERS;
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        frame(bytes, kind, flags, stream, piece);
        kind = CONTINUATION;
    }
}

/// A string of a header block: its length in the prefix code of seven bits, and itself.
pub fn text(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    match u8::try_from(length) {
        Ok(short @ 0..127) => block.push(short),
        _ => {
            block.push(127);
            length -= 127;
            while length >= 128 {
                block.push(u8::try_from(length % 128).unwrap() | 0x80);
                length /= 128;
            }
            block.push(u8::try_from(length).unwrap());
        }
    }
    block.extend_from_slice(text.as_bytes());
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}
