//! Messages of the API as JSON, by their descriptors. 64-bit integers stay numbers, which `jq` can
//! compare.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};

fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(mainstay_api::FILE_DESCRIPTOR_SET).unwrap_or_default()
    })
}

/// Converts a message of the type `name` to JSON.
pub fn to_json(name: &str, message: &impl Message) -> Value {
    json_of_bytes(name, &message.encode_to_vec())
}

/// Converts an encoded message of the type `name` to JSON; an unknown type becomes base64.
pub fn json_of_bytes(name: &str, bytes: &[u8]) -> Value {
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    pool()
        .get_message_by_name(name)
        .and_then(|descriptor| DynamicMessage::decode(descriptor, bytes).ok())
        .and_then(|message| {
            message
                .serialize_with_options(serde_json::value::Serializer, &options)
                .ok()
        })
        .unwrap_or_else(|| json!({ "unknown": STANDARD.encode(bytes) }))
}
