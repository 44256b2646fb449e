//! The dependencies between services: every reference exists, and there is no cycle.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Definition, ServiceName};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGraph {
    #[error("service {service:?} refers to service {missing:?}, which is not defined")]
    Missing { service: String, missing: String },
    #[error("services depend on each other in a cycle: {chain}")]
    Cycle { chain: String },
}

/// Checks a whole set of definitions. The error names the first fault in the order of names.
pub fn check(definitions: &BTreeMap<ServiceName, Definition>) -> Result<(), BadGraph> {
    for (service, definition) in definitions {
        if let Some(missing) = definition
            .dependencies()
            .find(|name| !definitions.contains_key(*name))
        {
            return Err(BadGraph::Missing {
                service: service.to_string(),
                missing: missing.to_string(),
            });
        }
    }
    match find_cycle(definitions) {
        Some(chain) => Err(BadGraph::Cycle {
            chain: chain
                .iter()
                .map(ServiceName::as_str)
                .collect::<Vec<_>>()
                .join(" → "),
        }),
        None => Ok(()),
    }
}

/// A depth-first search without recursion: a chain may be as long as there are services.
fn find_cycle(definitions: &BTreeMap<ServiceName, Definition>) -> Option<Vec<ServiceName>> {
    let mut finished = BTreeSet::new();
    for start in definitions.keys() {
        let mut path: Vec<(&ServiceName, Vec<&ServiceName>)> = Vec::new();
        let mut on_path = BTreeSet::new();
        let mut next = Some(start);
        loop {
            if let Some(name) = next.take() {
                if finished.contains(name) {
                    // Known to lead to no cycle.
                } else if !on_path.insert(name) {
                    let begin = path.iter().position(|(step, _)| *step == name)?;
                    let steps = path[begin..].iter().map(|(step, _)| (*step).clone());
                    return Some(steps.chain([name.clone()]).collect());
                } else {
                    let ahead = definitions.get(name).into_iter();
                    let mut ahead: Vec<_> = ahead.flat_map(Definition::dependencies).collect();
                    ahead.sort_unstable();
                    ahead.dedup();
                    ahead.reverse();
                    path.push((name, ahead));
                }
            }
            let Some((name, ahead)) = path.last_mut() else {
                break;
            };
            match ahead.pop() {
                Some(name) => next = Some(name),
                None => {
                    finished.insert(*name);
                    on_path.remove(*name);
                    path.pop();
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(services: &[(&str, &[&str], &[&str])]) -> BTreeMap<ServiceName, Definition> {
        let name = |text: &&str| text.parse::<ServiceName>().unwrap();
        let services = services.iter().map(|(service, requires, after)| {
            let mut definition = Definition::new(vec!["true".to_owned()]);
            definition.requires = requires.iter().map(name).collect();
            definition.after = after.iter().map(name).collect();
            (name(service), definition)
        });
        services.collect()
    }

    #[test]
    fn a_graph_without_cycles_is_accepted() {
        let diamond = set(&[
            ("a", &["b", "c"], &[]),
            ("b", &["d"], &[]),
            ("c", &[], &["d"]),
            ("d", &[], &[]),
        ]);
        assert_eq!(check(&diamond), Ok(()));
        assert_eq!(check(&BTreeMap::new()), Ok(()));
    }

    #[test]
    fn a_cycle_is_named_as_a_chain() {
        for (services, chain) in [
            (set(&[("a", &["a"], &[])]), "a → a"),
            (set(&[("a", &["b"], &[]), ("b", &[], &["a"])]), "a → b → a"),
            (
                set(&[
                    ("a", &["b"], &[]),
                    ("b", &["c"], &[]),
                    ("c", &["d"], &[]),
                    ("d", &["b"], &[]),
                ]),
                "b → c → d → b",
            ),
        ] {
            let error = check(&services).unwrap_err();
            assert!(error.to_string().ends_with(chain), "{error}");
        }
    }

    #[test]
    fn a_missing_reference_is_named() {
        let error = check(&set(&[("a", &[], &["gone"])])).unwrap_err();
        assert!(error.to_string().contains("\"a\"") && error.to_string().contains("\"gone\""));
    }

    #[test]
    fn a_chain_of_thousands_is_checked_without_recursion() {
        let names: Vec<String> = (0..20_000).map(|n| format!("s{n}")).collect();
        let mut services = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let mut definition = Definition::new(vec!["true".to_owned()]);
            let next = &names[(index + 1) % names.len()];
            definition.requires.insert(next.parse().unwrap());
            services.insert(name.parse::<ServiceName>().unwrap(), definition);
        }
        assert!(matches!(check(&services), Err(BadGraph::Cycle { .. })));
    }
}
