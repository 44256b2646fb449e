//! Packing of events in `machine.Event.data`.
//!
//! Clients recognise events by a type URL with a prefix of their own, not the default one of
//! protobuf libraries. Every event must be packed here, or clients skip it.

use prost::{DecodeError, Name};
use prost_types::Any;

/// The prefix of the full message name in the type URL of every event.
pub const KIND_PREFIX: &str = "talos/runtime/";

/// The reason a packed event cannot be decoded as the requested message.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("event of type {found:?} is not a {wanted}; check its kind before unpacking it")]
    OtherKind { found: String, wanted: String },
    #[error("event of kind {kind} cannot be decoded; its sender follows another contract")]
    Damaged { kind: String, source: DecodeError },
}

/// Packs `message` under the type URL that event readers look for.
pub fn pack<M: Name>(message: &M) -> Any {
    Any {
        type_url: format!("{KIND_PREFIX}{}", M::full_name()),
        value: message.encode_to_vec(),
    }
}

/// The full message name of a packed event, such as `machine.SequenceEvent`; none if it is not
/// an event at all, as in the empty one that opens a resumed stream.
pub fn kind(packed: &Any) -> Option<&str> {
    packed
        .type_url
        .strip_prefix(KIND_PREFIX)
        .filter(|name| !name.is_empty())
}

/// Reads a packed event as the message `M`, which must be its kind.
pub fn unpack<M: Name + Default>(packed: &Any) -> Result<M, UnpackError> {
    let wanted = M::full_name();
    if kind(packed) != Some(wanted.as_str()) {
        return Err(UnpackError::OtherKind {
            found: packed.type_url.clone(),
            wanted,
        });
    }
    M::decode(packed.value.as_slice()).map_err(|source| UnpackError::Damaged {
        kind: wanted,
        source,
    })
}
