//! The shape of every message, from the contract's descriptors: which methods can be merged, and
//! whether the client's decoder will accept a node's message.

use std::collections::HashMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::wire::{Fields, Malformed, Value, is_packed_varints};

/// The message that names the node an answer is from.
const METADATA: &str = ".common.Metadata";
/// Decoders refuse messages nested deeper than a hundred levels; ours have seven at most.
const MAX_LEVELS: usize = 50;

/// Every message and every mergeable method of the contract.
#[derive(Debug, Default)]
pub struct Contract {
    messages: Vec<Shape>,
    methods: HashMap<String, Method>,
}

/// A method whose answers can be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// True if it answers with a stream.
    pub streams: bool,
    answer: usize,
}

/// The fields of a message, by number.
#[derive(Debug, Default)]
struct Shape(Vec<(u32, Kind)>);

#[derive(Debug, Clone, Copy)]
struct Kind {
    holds: Holds,
    repeated: bool,
}

#[derive(Debug, Clone, Copy)]
enum Holds {
    Varint,
    Fixed32,
    Fixed64,
    Bytes,
    Text,
    Message(usize),
}

impl Contract {
    /// Builds the contract from an encoded `FileDescriptorSet`, without the parts that cannot be
    /// decoded.
    pub fn from_descriptors(bytes: &[u8]) -> Self {
        let files = FileDescriptorSet::decode(bytes).unwrap_or_default();
        let mut found = Vec::new();
        for file in &files.file {
            for message in &file.message_type {
                collect(&format!(".{}", file.package()), message, &mut found);
            }
        }
        let index: HashMap<&str, usize> = found
            .iter()
            .enumerate()
            .map(|(at, (name, _))| (name.as_str(), at))
            .collect();
        let messages = found
            .iter()
            .map(|(_, message)| Shape::of(message, &index))
            .collect();
        let mut methods = HashMap::new();
        for file in &files.file {
            for service in &file.service {
                for method in &service.method {
                    let Some(&answer) = index.get(method.output_type()) else {
                        continue;
                    };
                    let streams = method.server_streaming();
                    let tagged = if streams {
                        Some(answer)
                    } else {
                        messages_of(found[answer].1, &index)
                    };
                    if method.client_streaming()
                        || !tagged.is_some_and(|at| begins_with_metadata(found[at].1))
                    {
                        continue;
                    }
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    methods.insert(path, Method { streams, answer });
                }
            }
        }
        Self { messages, methods }
    }

    /// Returns the method of a gRPC path if the answers of several nodes to it can be merged.
    pub fn method(&self, path: &str) -> Option<Method> {
        self.methods.get(path).copied()
    }

    /// Checks that `message` is an answer of `method`, down to the last nested field.
    pub fn check(&self, method: Method, message: &[u8]) -> Result<(), Malformed> {
        self.check_message(method.answer, message, MAX_LEVELS)
    }

    fn check_message(&self, at: usize, message: &[u8], levels: usize) -> Result<(), Malformed> {
        let shape = self.messages.get(at).ok_or(Malformed)?;
        let levels = levels.checked_sub(1).ok_or(Malformed)?;
        for field in Fields::of(message) {
            let field = field?;
            // Fields of later versions are passed on unchecked.
            let Some(kind) = shape.field(field.number) else {
                continue;
            };
            let fits = match (kind.holds, field.value) {
                (Holds::Varint, Value::Varint(_))
                | (Holds::Fixed32, Value::Fixed32)
                | (Holds::Fixed64, Value::Fixed64)
                | (Holds::Bytes, Value::Bytes(_)) => true,
                (Holds::Text, Value::Bytes(text)) => std::str::from_utf8(text).is_ok(),
                (Holds::Message(inner), Value::Bytes(bytes)) => {
                    self.check_message(inner, bytes, levels)?;
                    true
                }
                (holds, Value::Bytes(list)) if kind.repeated => match holds {
                    Holds::Varint => is_packed_varints(list),
                    Holds::Fixed32 => list.len().is_multiple_of(4),
                    Holds::Fixed64 => list.len().is_multiple_of(8),
                    _ => false,
                },
                _ => false,
            };
            if !fits {
                return Err(Malformed);
            }
        }
        Ok(())
    }
}

impl Shape {
    fn of(message: &DescriptorProto, index: &HashMap<&str, usize>) -> Self {
        let mut fields: Vec<(u32, Kind)> = message
            .field
            .iter()
            .filter_map(|field| {
                let holds = match field.r#type() {
                    Type::Double | Type::Fixed64 | Type::Sfixed64 => Holds::Fixed64,
                    Type::Float | Type::Fixed32 | Type::Sfixed32 => Holds::Fixed32,
                    Type::String => Holds::Text,
                    Type::Bytes => Holds::Bytes,
                    Type::Message | Type::Group => Holds::Message(*index.get(field.type_name())?),
                    _ => Holds::Varint,
                };
                let repeated = field.label() == Label::Repeated;
                let number = u32::try_from(field.number()).ok()?;
                Some((number, Kind { holds, repeated }))
            })
            .collect();
        fields.sort_unstable_by_key(|(number, _)| *number);
        Self(fields)
    }

    fn field(&self, number: u32) -> Option<Kind> {
        let at = self
            .0
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok()?;
        Some(self.0[at].1)
    }
}

fn collect<'a>(
    scope: &str,
    message: &'a DescriptorProto,
    found: &mut Vec<(String, &'a DescriptorProto)>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, found);
    }
    found.push((name, message));
}

fn first(message: &DescriptorProto) -> Option<&FieldDescriptorProto> {
    message.field.iter().find(|field| field.number() == 1)
}

/// The type of the messages in a reply, if the reply is an envelope.
fn messages_of(reply: &DescriptorProto, index: &HashMap<&str, usize>) -> Option<usize> {
    let messages = first(reply).filter(|field| field.label() == Label::Repeated)?;
    index.get(messages.type_name()).copied()
}

fn begins_with_metadata(message: &DescriptorProto) -> bool {
    first(message).is_some_and(|field| field.type_name() == METADATA)
}
