//! How answers of many nodes become one: protobuf joins what stands twice in a message, so a node's
//! name is added to its answer by appending it.

use tonic::Status;

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

/// Says of an answer which node it came from.
#[derive(Debug, Clone)]
pub struct NodeTag {
    hostname: String,
    /// A message that holds nothing but `metadata{hostname}`.
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

    /// What makes a streamed message this node's when it is appended to it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A reply with every message in it tagged, if that takes no more than `most` bytes. A reply
    /// without any message gets one, so that the node's answer can be seen.
    pub fn tag_reply(&self, reply: &[u8], most: usize) -> Result<Vec<u8>, TagError> {
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
            if length > most {
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

    /// The message of a node that failed: who it is and why, and nothing else.
    pub fn failure(&self, status: &Status) -> Vec<u8> {
        let mut text = status.message().to_owned();
        if text.is_empty() {
            text = format!("the node answered {:?}", status.code());
        }
        let mut detail = Vec::new();
        detail.push(STATUS_CODE << 3);
        put_varint(status.code() as usize, &mut detail);
        put_bytes(STATUS_MESSAGE, text.as_bytes(), &mut detail);
        let mut metadata = Vec::new();
        put_bytes(HOSTNAME, self.hostname.as_bytes(), &mut metadata);
        put_bytes(ERROR, text.as_bytes(), &mut metadata);
        put_bytes(STATUS, &detail, &mut metadata);
        let mut message = Vec::new();
        put_bytes(FIRST, &metadata, &mut message);
        message
    }

    /// The same as a reply of its own.
    pub fn failed_reply(&self, status: &Status) -> Vec<u8> {
        let mut reply = Vec::new();
        put_bytes(FIRST, &self.failure(status), &mut reply);
        reply
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it is too large")]
    TooLarge,
}
