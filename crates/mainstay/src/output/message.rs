//! Any message of the contract as JSON, by its descriptor. 64-bit numbers stay numbers: people
//! pipe this into `jq`.

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

/// `message`, which is a `name` of the contract.
pub fn value(name: &str, message: &impl Message) -> Value {
    value_of_bytes(name, &message.encode_to_vec())
}

/// A message that came as bytes. One this version does not know is shown as it came.
pub fn value_of_bytes(name: &str, bytes: &[u8]) -> Value {
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
