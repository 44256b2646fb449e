//! The actor of an event, kept in the journal as one more field of the event's message.
//!
//! The journal keeps a kind and bytes. An unknown field at the end of the message is skipped by
//! every reader of protobuf, so builds that know nothing of actors deliver such events as they are.
//! On the wire the field is removed again: the actor has a field of its own there.

use prost::Message;

/// No event has a field of this number.
const FIELD: u32 = 1000;

#[derive(Clone, PartialEq, Message)]
struct Tag {
    #[prost(string, tag = "1000")]
    actor: String,
}

/// Appends the actor to the bytes of a message.
pub fn append(payload: &mut Vec<u8>, actor: &str) {
    let tag = Tag {
        actor: actor.to_owned(),
    };
    payload.extend(tag.encode_to_vec());
}

/// Splits the bytes of a message from the actor at their end; empty if there is none.
pub fn split(payload: &[u8]) -> (&[u8], String) {
    let key = key();
    // Most events have none, and are not decoded.
    let may_be_tagged = payload.windows(key.len()).any(|bytes| bytes == key);
    let tag = match may_be_tagged.then(|| Tag::decode(payload)) {
        Some(Ok(tag)) if !tag.actor.is_empty() => tag,
        _ => return (payload, String::new()),
    };
    match payload.strip_suffix(tag.encode_to_vec().as_slice()) {
        Some(message) => (message, tag.actor),
        None => (payload, String::new()),
    }
}

/// The first bytes of the field: its number and its type, length-delimited.
fn key() -> [u8; 2] {
    const KEY: u32 = FIELD << 3 | 2;
    let [low, high, ..] = KEY.to_le_bytes();
    // A varint of two bytes has seven bits in each.
    [low | 0x80, (high << 1) | (low >> 7)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::machine::PhaseEvent;

    #[test]
    fn an_actor_is_split_from_the_message_it_was_appended_to() {
        let event = PhaseEvent {
            phase: "reboot".to_owned(),
            action: 1,
        };
        let message = event.encode_to_vec();
        assert_eq!(split(&message), (message.as_slice(), String::new()));
        let mut tagged = message.clone();
        append(&mut tagged, "a-b");
        assert_eq!(split(&tagged), (message.as_slice(), "a-b".to_owned()));
        // A reader that knows nothing of actors skips the field.
        assert_eq!(PhaseEvent::decode(tagged.as_slice()).unwrap(), event);
    }

    #[test]
    fn bytes_that_are_no_message_are_left_alone() {
        for bytes in [&b""[..], b"\xff\xff", b"\xc2\x3e\xff"] {
            assert_eq!(split(bytes), (bytes, String::new()));
        }
    }
}
