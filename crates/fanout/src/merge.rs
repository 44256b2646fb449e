//! Tagging of answers with their node: protobuf merges a field that occurs twice in a message, so
//! the node's name is added to an answer by appending it.

use tonic::{Code, Status};

use crate::wire::{Fields, Malformed, Value, put_bytes, put_varint, varint_length};

/// `metadata` in every message that can be merged, and `messages` in every reply.
const FIRST: u8 = 1;
/// The fields of `common.Metadata`.
const HOSTNAME: u8 = 1;
const ERROR: u8 = 2;
const STATUS: u8 = 3;
/// The fields of `google.rpc.Status`.
const STATUS_CODE: u8 = 1;
const STATUS_MESSAGE: u8 = 2;

/// The name of a node, encoded such that it can be appended to the node's answers.
#[derive(Debug, Clone)]
pub struct NodeTag {
    hostname: String,
    /// An encoded message with nothing but `metadata{hostname}`.
    bytes: Vec<u8>,
}

impl NodeTag {
    /// `hostname` is the node as the client named it.
    pub fn new(hostname: &str) -> Self {
        let mut metadata = Vec::new();
        put_bytes(HOSTNAME, hostname.as_bytes(), &mut metadata);
        let mut bytes = Vec::new();
        put_bytes(FIRST, &metadata, &mut bytes);
        Self {
            hostname: hostname.to_owned(),
            bytes,
        }
    }

    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// The bytes that tag a streamed message when they are appended to it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Tags every message of a reply, if the result takes no more than `max` bytes. A reply
    /// without messages gets one, so that the node appears in the answer.
    pub fn tag_reply(&self, reply: &[u8], max: usize) -> Result<Vec<u8>, TagError> {
        let mut length = 0usize;
        let mut tagged_any = false;
        for field in Fields::of(reply) {
            let field = field?;
            length += match field.value {
                Value::Bytes(message) if field.number == u32::from(FIRST) => {
                    tagged_any = true;
                    let message = message.len() + self.bytes.len();
                    1 + varint_length(message) + message
                }
                _ => field.raw.len(),
            };
            if length > max {
                return Err(TagError::TooLarge);
            }
        }
        let mut tagged = Vec::with_capacity(length + self.bytes.len() + 8);
        for field in Fields::of(reply) {
            let field = field?;
            match field.value {
                Value::Bytes(message) if field.number == u32::from(FIRST) => {
                    tagged.push(FIRST << 3 | 2);
                    put_varint(message.len() + self.bytes.len(), &mut tagged);
                    tagged.extend_from_slice(message);
                    tagged.extend_from_slice(&self.bytes);
                }
                _ => tagged.extend_from_slice(field.raw),
            }
        }
        if !tagged_any {
            put_bytes(FIRST, &self.bytes, &mut tagged);
        }
        Ok(tagged)
    }

    /// Returns the message of a node that failed, with nothing but its name and status.
    pub fn failure(&self, status: &Status) -> Vec<u8> {
        let mut text = status.message().to_owned();
        if text.is_empty() {
            text = format!("the node answered {:?}", status.code());
        }
        let error = format!(
            "rpc error: code = {} desc = {text}",
            code_name(status.code())
        );
        let mut detail = Vec::new();
        detail.push(STATUS_CODE << 3);
        put_varint(status.code() as usize, &mut detail);
        put_bytes(STATUS_MESSAGE, text.as_bytes(), &mut detail);
        let mut metadata = Vec::new();
        put_bytes(HOSTNAME, self.hostname.as_bytes(), &mut metadata);
        put_bytes(ERROR, error.as_bytes(), &mut metadata);
        put_bytes(STATUS, &detail, &mut metadata);
        let mut message = Vec::new();
        put_bytes(FIRST, &metadata, &mut message);
        message
    }

    /// Returns [`NodeTag::failure`] as a reply.
    pub fn failed_reply(&self, status: &Status) -> Vec<u8> {
        let mut reply = Vec::new();
        put_bytes(FIRST, &self.failure(status), &mut reply);
        reply
    }
}

/// The name of a code in the text that clients of this API print and match.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the tagged reply is too large")]
    TooLarge,
}
