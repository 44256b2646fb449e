//! The compiled contract is exactly the one existing clients rely on, plus what is listed as
//! added; and what is added agrees with later versions of the same interfaces.

use crate::descriptors::{compiled, outline};
use crate::expectations::{additions, contract, contract_with, later};
use crate::outline::{Item, Outline, differences};

#[test]
fn the_compiled_contract_is_exactly_the_expected_one() {
    let differences = differences(&contract_with(additions()), &outline(&compiled()));
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(
        told.is_empty(),
        "the contract differs:\n{}",
        told.join("\n")
    );
}

#[test]
fn all_45_rpcs_of_existing_clients_exist() {
    let found = outline(&compiled());
    let rpcs = contract()
        .keys()
        .filter(|item| matches!(item, Item::Rpc { .. }) && found.contains_key(item))
        .count();
    assert_eq!(rpcs, 45);
}

#[test]
fn additions_agree_with_later_versions() {
    assert_eq!(disagreements(&additions(), &later()), Vec::<String>::new());
}

#[test]
fn the_services_of_later_clients_of_cells_are_complete() {
    for package in ["aurae.cells.v0", "aurae.discovery.v0", "aurae.observe.v0"] {
        let of_package = |outline: Outline| -> Outline {
            let inside = |item: &Item| item.to_string().contains(&format!(" {package}."));
            outline
                .into_iter()
                .filter(|(item, _)| inside(item))
                .collect()
        };
        let expected = of_package(later());
        assert!(expected.len() > 3, "later.json knows {package}");
        let told: Vec<String> = differences(&expected, &of_package(outline(&compiled())))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(told, Vec::<String>::new());
    }
}

#[test]
fn an_addition_with_the_wrong_type_disagrees() {
    let mut additions = additions();
    additions.insert(tail_id(2), "tail_id int64".to_owned());
    assert_eq!(
        disagreements(&additions, &later()),
        ["field 2 of machine.EventsRequest is \"tail_id int64\", later \"tail_id string\""]
    );
}

#[test]
fn an_addition_with_the_wrong_number_disagrees() {
    let mut additions = additions();
    let said = additions.remove(&tail_id(2)).unwrap();
    additions.insert(tail_id(102), said);
    assert_eq!(
        disagreements(&additions, &later()),
        ["field 102 of machine.EventsRequest has the name of field 2 of machine.EventsRequest"]
    );
}

#[test]
fn an_added_enum_value_with_the_wrong_number_disagrees() {
    let mut additions = additions();
    let of = "machine.ServiceStateEvent.Action".to_owned();
    additions.insert(
        Item::Value {
            of,
            name: "STARTING".to_owned(),
        },
        "9".to_owned(),
    );
    assert_eq!(
        disagreements(&additions, &later()),
        ["value STARTING of machine.ServiceStateEvent.Action is \"9\", later \"8\""]
    );
}

fn tail_id(number: i32) -> Item {
    Item::Field {
        message: "machine.EventsRequest".to_owned(),
        number,
    }
}

/// Where `additions` says of an item that `later` knows something else than `later` does, or
/// gives one of its fields another number. Items that `later` does not know are free.
fn disagreements(additions: &Outline, later: &Outline) -> Vec<String> {
    let mut found = Vec::new();
    for (item, said) in additions {
        if let Some(known) = later.get(item) {
            if known != said {
                found.push(format!("{item} is {said:?}, later {known:?}"));
            }
        } else if let Some(known) = field_of_same_name(later, item, said) {
            found.push(format!("{item} has the name of {known}"));
        }
    }
    found
}

fn field_of_same_name<'a>(later: &'a Outline, item: &Item, said: &str) -> Option<&'a Item> {
    let Item::Field { message, .. } = item else {
        return None;
    };
    let name = said.split(' ').next();
    later
        .iter()
        .find(|(known, text)| {
            matches!(known, Item::Field { message: of, .. } if of == message)
                && text.split(' ').next() == name
        })
        .map(|(known, _)| known)
}
