//! The compiled side of the comparison: a descriptor set reduced to its outline.

use mainstay_api::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, ServiceDescriptorProto,
};

use crate::outline::{Item, Outline};

/// The descriptor set as it is compiled into the crate.
pub(crate) fn compiled() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap()
}

/// Everything the files define, except protobuf's own well-known types.
pub(crate) fn outline(descriptors: &FileDescriptorSet) -> Outline {
    let mut outline = Outline::new();
    for file in descriptors
        .file
        .iter()
        .filter(|file| file.package() != "google.protobuf")
    {
        add_file(&mut outline, file);
    }
    outline
}

fn add_file(outline: &mut Outline, file: &FileDescriptorProto) {
    let package = file.package();
    // An older syntax would change how fields are encoded without changing anything below.
    assert_eq!(file.syntax(), "proto3", "syntax of {}", file.name());
    outline.insert(Item::Package(package.to_owned()), String::new());
    for message in &file.message_type {
        add_message(outline, package, message);
    }
    for definition in &file.enum_type {
        add_enum(outline, package, definition);
    }
    for service in &file.service {
        add_service(outline, package, service);
    }
}

fn add_message(outline: &mut Outline, scope: &str, message: &DescriptorProto) {
    let full_name = format!("{scope}.{}", message.name());
    outline.insert(Item::Message(full_name.clone()), String::new());
    for field in &message.field {
        let item = Item::Field {
            message: full_name.clone(),
            number: field.number(),
        };
        outline.insert(item, field_text(field));
    }
    for nested in &message.nested_type {
        add_message(outline, &full_name, nested);
    }
    for nested in &message.enum_type {
        add_enum(outline, &full_name, nested);
    }
}

fn add_enum(outline: &mut Outline, scope: &str, definition: &EnumDescriptorProto) {
    let full_name = format!("{scope}.{}", definition.name());
    outline.insert(Item::Enum(full_name.clone()), String::new());
    for value in &definition.value {
        let item = Item::Value {
            of: full_name.clone(),
            name: value.name().to_owned(),
        };
        outline.insert(item, value.number().to_string());
    }
}

fn add_service(outline: &mut Outline, scope: &str, service: &ServiceDescriptorProto) {
    let full_name = format!("{scope}.{}", service.name());
    outline.insert(Item::Service(full_name.clone()), String::new());
    for method in &service.method {
        let request = streamed(method.client_streaming(), method.input_type());
        let reply = streamed(method.server_streaming(), method.output_type());
        let item = Item::Rpc {
            service: full_name.clone(),
            name: method.name().to_owned(),
        };
        outline.insert(item, format!("{request} -> {reply}"));
    }
}

/// The name and type of a field in the notation of the JSON files: `*` for repeated and `?` for
/// optional. What that notation cannot say, and would still change the encoding or the JSON, is
/// spelt out after it and so counts as a change.
fn field_text(field: &FieldDescriptorProto) -> String {
    let mut text = format!("{} {}", field.name(), type_name(field));
    if field.label() == Label::Repeated {
        text.push('*');
    } else if field.proto3_optional() {
        text.push('?');
    } else if field.oneof_index.is_some() {
        text.push_str(" in a oneof");
    }
    if field
        .options
        .as_ref()
        .is_some_and(|options| options.packed == Some(false))
    {
        text.push_str(" not packed");
    }
    if field.json_name() != lower_camel(field.name()) {
        text.push_str(&format!(" named {} in JSON", field.json_name()));
    }
    text
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum | Type::Group => unrooted(field.type_name()).to_owned(),
        scalar => scalar
            .as_str_name()
            .trim_start_matches("TYPE_")
            .to_lowercase(),
    }
}

fn streamed(streaming: bool, type_name: &str) -> String {
    let prefix = if streaming { "stream " } else { "" };
    format!("{prefix}{}", unrooted(type_name))
}

/// Descriptors mark a full name by a leading dot.
fn unrooted(type_name: &str) -> &str {
    type_name.strip_prefix('.').unwrap_or(type_name)
}

/// The name protobuf gives a field in JSON unless told otherwise.
fn lower_camel(name: &str) -> String {
    let mut camel = String::new();
    let mut after_underscore = false;
    for letter in name.chars() {
        if letter == '_' {
            after_underscore = true;
        } else if std::mem::take(&mut after_underscore) {
            camel.push(letter.to_ascii_uppercase());
        } else {
            camel.push(letter);
        }
    }
    camel
}
