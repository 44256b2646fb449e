//! The written side of the comparison: the JSON files in `tests/data`.

use serde_json::Value;

use crate::outline::{Item, Outline};

/// The contract existing clients rely on.
pub(crate) fn contract() -> Outline {
    by_package(include_str!("../data/contract.json"))
}

/// The additions to it.
pub(crate) fn additions() -> Outline {
    by_package(include_str!("../data/additions.json"))
}

/// The additions of later versions of the same interfaces, which additions here must agree with.
pub(crate) fn later() -> Outline {
    let json: Value = serde_json::from_str(include_str!("../data/later.json")).unwrap();
    let mut outline = Outline::new();
    add_messages(&mut outline, &json["messages"]);
    add_messages(&mut outline, &json["added_fields"]);
    add_enums(&mut outline, &json["enums"]);
    add_services(&mut outline, &json["services"]);
    outline
}

/// The contract with the additions, which may extend a message but never change it. A method that
/// took no arguments may take some: on the wire an empty message is any message with its defaults.
pub(crate) fn contract_with(additions: Outline) -> Outline {
    let mut all = contract();
    for (item, said) in additions {
        if let Some(before) = all.insert(item.clone(), said.clone()) {
            let widened = before.strip_prefix("google.protobuf.Empty -> ");
            let answer = said.split_once(" -> ").map(|(_, answer)| answer);
            let is_widened = widened.is_some() && widened == answer;
            assert!(
                is_widened || before == said,
                "additions.json redefines {item}: {before} is {said}"
            );
        }
    }
    all
}

fn by_package(text: &str) -> Outline {
    let json: Value = serde_json::from_str(text).unwrap();
    let mut outline = Outline::new();
    for (package, content) in json.as_object().unwrap() {
        outline.insert(Item::Package(package.clone()), String::new());
        add_messages(&mut outline, &content["messages"]);
        add_enums(&mut outline, &content["enums"]);
        add_services(&mut outline, &content["services"]);
    }
    outline
}

fn add_messages(outline: &mut Outline, messages: &Value) {
    for (message, fields) in messages.as_object().unwrap() {
        outline.insert(Item::Message(message.clone()), String::new());
        for field in fields.as_array().unwrap() {
            let (number, said) = field.as_str().unwrap().split_once(' ').unwrap();
            let item = Item::Field {
                message: message.clone(),
                number: number.parse().unwrap(),
            };
            let before = outline.insert(item.clone(), said.to_owned());
            assert_eq!(before, None, "{item} is written twice");
        }
    }
}

fn add_enums(outline: &mut Outline, enums: &Value) {
    for (of, values) in enums.as_object().unwrap() {
        outline.insert(Item::Enum(of.clone()), String::new());
        for (name, number) in values.as_object().unwrap() {
            let item = Item::Value {
                of: of.clone(),
                name: name.clone(),
            };
            outline.insert(item, number.as_i64().unwrap().to_string());
        }
    }
}

fn add_services(outline: &mut Outline, services: &Value) {
    for (service, rpcs) in services.as_object().unwrap() {
        outline.insert(Item::Service(service.clone()), String::new());
        for (name, signature) in rpcs.as_object().unwrap() {
            let item = Item::Rpc {
                service: service.clone(),
                name: name.clone(),
            };
            outline.insert(item, signature.as_str().unwrap().to_owned());
        }
    }
}
