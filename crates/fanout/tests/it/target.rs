//! Names of nodes.

use mainstay_fanout::Target;
use proptest::prelude::*;

#[test]
fn names_addresses_and_ports_are_parsed() {
    for (text, address) in [
        ("node1", "node1:50000"),
        ("Node-1.Example.COM", "node-1.example.com:50000"),
        ("node1.", "node1.:50000"),
        ("10.0.0.5", "10.0.0.5:50000"),
        ("10.0.0.5:7", "10.0.0.5:7"),
        ("node1:65535", "node1:65535"),
        ("::1", "[::1]:50000"),
        ("[fe00::1]", "[fe00::1]:50000"),
        ("[fe00::1]:9", "[fe00::1]:9"),
    ] {
        let target = Target::parse(text).unwrap();
        assert_eq!(target.address(50000).to_string(), address, "{text}");
    }
}

#[test]
fn malformed_names_are_refused() {
    let long = "a".repeat(64);
    let longer = "a.".repeat(200);
    for text in [
        "",
        " ",
        ",",
        "a,b",
        "a b",
        "a:",
        ":1",
        "a:0",
        "a:+1",
        "a:65536",
        "a:b",
        "[::1",
        "[::1]9",
        "[a]:1",
        "a/b",
        "http://a",
        "a@b",
        "-a",
        "a-",
        "a..b",
        ".",
        "10.1",
        "1",
        "256.0.0.1",
        "unix:/x",
        "é",
        "a\n",
        &long,
        &longer,
    ] {
        assert!(Target::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_huge_value_is_not_repeated_in_the_error() {
    let error = Target::parse(&"x y".repeat(100_000)).unwrap_err();
    assert!(error.to_string().len() < 300);
}

proptest! {
    #[test]
    fn a_parsed_name_parses_again_to_itself(text in ".{0,40}|[a-z0-9.:\\[\\]-]{1,30}") {
        if let Ok(target) = Target::parse(&text) {
            let address = target.address(50000).to_string();
            let again = Target::parse(&address).unwrap();
            prop_assert_eq!(again.address(1).to_string(), address);
        }
    }
}
