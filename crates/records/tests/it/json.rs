use std::path::Path;

use mainstay_records::{RecordError, decode, encode, read, write_runtime};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    name: String,
    count: i64,
    #[serde(default)]
    tags: Vec<String>,
}

fn sample() -> Sample {
    Sample {
        name: "web".to_owned(),
        count: -3,
        tags: vec!["a".to_owned()],
    }
}

fn decode_sample(text: &str, supported: u64) -> Result<Sample, RecordError> {
    decode(Path::new("dir/sample.json"), text.as_bytes(), supported)
}

#[test]
fn the_version_is_the_first_field_of_the_record() {
    assert_eq!(
        String::from_utf8(encode(&sample(), 1).unwrap()).unwrap(),
        r#"{"version":1,"name":"web","count":-3,"tags":["a"]}"#
    );
}

#[test]
fn a_record_without_a_version_is_version_1() {
    let text = r#"{"name":"web","count":-3,"tags":["a"]}"#;
    assert_eq!(decode_sample(text, 1).unwrap(), sample());
}

#[test]
fn a_newer_version_is_refused_with_the_remedy_before_its_fields_are_read() {
    for text in [
        r#"{"version":3,"name":["changed"]}"#,
        r#"{"name":7,"version":3}"#,
    ] {
        let error = decode_sample(text, 1).unwrap_err();
        assert!(
            matches!(
                error,
                RecordError::Newer {
                    found: 3,
                    supported: 1,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(
            error.to_string(),
            "record dir/sample.json has format version 3, this build reads up to 1; upgrade \
             mainstay or remove the record"
        );
    }
}

#[test]
fn what_is_no_record_is_corrupt_and_the_cause_is_its_source() {
    for text in [
        "",
        "{",
        "null",
        "[]",
        "[3]",
        "7",
        "\"text\"",
        "{}",
        r#"{"version":"1","name":"x"}"#,
        r#"{"version":-1,"name":"x","count":1}"#,
        r#"{"version":1.5,"name":"x","count":1}"#,
        r#"{"version":null,"name":"x","count":1}"#,
        r#"{"version":1,"version":1,"name":"x","count":1}"#,
        r#"{"version":1,"name":"x","count":1} trailing"#,
    ] {
        let error = decode_sample(text, 1).unwrap_err();
        assert!(
            matches!(error, RecordError::Corrupt { .. }),
            "{text}: {error:?}"
        );
        assert_eq!(error.to_string(), "record dir/sample.json is corrupt");
        assert!(std::error::Error::source(&error).is_some(), "{text}");
    }
}

#[test]
fn a_missing_file_and_an_unreadable_one_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.json");
    let error = read::<Sample>(&missing, 1).unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    assert_eq!(error.path(), missing);
    let error = read::<Sample>(directory.path(), 1).unwrap_err();
    assert!(matches!(error, RecordError::Unreadable { .. }), "{error:?}");
}

fn samples() -> impl Strategy<Value = Sample> {
    (".*", any::<i64>(), proptest::collection::vec(".*", 0..4))
        .prop_map(|(name, count, tags)| Sample { name, count, tags })
}

/// JSON of any shape, a few levels deep.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((".*", inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(sample in samples(), version in 1..5_u64) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sample.json");
        write_runtime(&path, &encode(&sample, version).unwrap()).unwrap();
        prop_assert_eq!(&read::<Sample>(&path, version).unwrap(), &sample);
        prop_assert_eq!(read::<Sample>(&path, version + 1).unwrap(), sample);
    }

    #[test]
    fn unknown_fields_are_ignored(sample in samples(), extra in values(), key in "x[a-z]{0,8}") {
        let mut record = serde_json::to_value(&sample).unwrap();
        record[key] = extra;
        prop_assert_eq!(decode_sample(&record.to_string(), 1).unwrap(), sample);
    }

    #[test]
    fn exactly_the_newer_versions_are_refused(found: u64, supported: u64) {
        let text = json!({"version": found, "name": "x", "count": 1}).to_string();
        match decode_sample(&text, supported) {
            Ok(_) => prop_assert!(found <= supported),
            Err(RecordError::Newer { found: refused, supported: known, .. }) => {
                prop_assert!(found > supported);
                prop_assert_eq!((refused, known), (found, supported));
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn a_truncated_record_is_corrupt(sample in samples(), cut: prop::sample::Index) {
        let text = encode(&sample, 1).unwrap();
        let part = &text[..cut.index(text.len())];
        let error = decode::<Sample>(Path::new("p"), part, 1).unwrap_err();
        prop_assert!(matches!(error, RecordError::Corrupt { .. }), "{:?}", error);
    }

    #[test]
    fn any_json_is_read_or_refused_without_a_panic(value in values(), supported: u64) {
        let _ = decode_sample(&value.to_string(), supported);
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes: Vec<u8>) {
        let _ = decode::<Sample>(Path::new("p"), &bytes, 1);
    }
}
