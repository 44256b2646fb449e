//! Every message, enum, service and rpc has a comment.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::{DescriptorProto, FileDescriptorProto};

// How descriptors number the parts of a file, a message and a service in the path of a location.
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const NESTED_MESSAGES: i32 = 3;
const NESTED_ENUMS: i32 = 4;
const METHODS: i32 = 2;

#[test]
fn every_item_has_a_comment() {
    let undocumented: Vec<String> = sources().iter().flat_map(undocumented).collect();
    assert!(
        undocumented.is_empty(),
        "without a comment: {}",
        undocumented.join(", ")
    );
}

#[test]
fn a_removed_comment_is_detected() {
    for (path, name) in [
        (vec![MESSAGES, 0], "machine.Reboot"),
        (
            vec![MESSAGES, 6, NESTED_ENUMS, 0],
            "machine.SequenceEvent.Action",
        ),
        (vec![SERVICES, 0], "machine.MachineService"),
        (
            vec![SERVICES, 0, METHODS, 18],
            "machine.MachineService.Version",
        ),
    ] {
        let mut machine = sources()
            .into_iter()
            .find(|file| file.name() == "machine/machine.proto")
            .unwrap();
        let info = machine.source_code_info.as_mut().unwrap();
        info.location
            .iter_mut()
            .find(|at| at.path == path)
            .unwrap()
            .leading_comments = None;
        assert_eq!(undocumented(&machine), [name]);
    }
}

#[test]
fn the_compiled_descriptors_carry_no_source_positions() {
    let with_positions = crate::descriptors::compiled()
        .file
        .iter()
        .filter(|file| file.source_code_info.is_some())
        .count();
    assert_eq!(with_positions, 0);
}

/// The files of the contract, compiled anew because only that keeps the comments.
fn sources() -> Vec<FileDescriptorProto> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let mut folders = vec![root.clone()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    assert!(!files.is_empty());
    let compiled = protox::compile(files, [root]).unwrap();
    compiled
        .file
        .into_iter()
        .filter(|file| file.package() != "google.protobuf")
        .collect()
}

fn undocumented(file: &FileDescriptorProto) -> Vec<String> {
    let commented: HashSet<&[i32]> = file
        .source_code_info
        .iter()
        .flat_map(|info| &info.location)
        .filter(|at| !at.leading_comments().trim().is_empty())
        .map(|at| at.path.as_slice())
        .collect();
    let mut parts = Vec::new();
    for (index, message) in (0..).zip(&file.message_type) {
        add_message(&mut parts, vec![MESSAGES, index], file.package(), message);
    }
    for (index, definition) in (0..).zip(&file.enum_type) {
        parts.push((
            vec![ENUMS, index],
            format!("{}.{}", file.package(), definition.name()),
        ));
    }
    for (index, service) in (0..).zip(&file.service) {
        let name = format!("{}.{}", file.package(), service.name());
        for (at, method) in (0..).zip(&service.method) {
            let path = vec![SERVICES, index, METHODS, at];
            parts.push((path, format!("{name}.{}", method.name())));
        }
        parts.push((vec![SERVICES, index], name));
    }
    parts
        .into_iter()
        .filter(|(path, _)| !commented.contains(path.as_slice()))
        .map(|(_, name)| name)
        .collect()
}

fn add_message(
    parts: &mut Vec<(Vec<i32>, String)>,
    path: Vec<i32>,
    scope: &str,
    message: &DescriptorProto,
) {
    let name = format!("{scope}.{}", message.name());
    for (index, nested) in (0..).zip(&message.nested_type) {
        add_message(
            parts,
            [path.as_slice(), &[NESTED_MESSAGES, index]].concat(),
            &name,
            nested,
        );
    }
    for (index, nested) in (0..).zip(&message.enum_type) {
        let path = [path.as_slice(), &[NESTED_ENUMS, index]].concat();
        parts.push((path, format!("{name}.{}", nested.name())));
    }
    parts.push((path, name));
}
