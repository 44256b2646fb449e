//! Selection of a container by id.

use crate::container::Container;
use crate::error::ContainerError;

/// Returns the container with this internal id; else, of those shown with this id, the running
/// one, else the newest.
pub(crate) fn choose<'a>(all: &'a [Container], id: &str) -> Result<&'a Container, ContainerError> {
    all.iter()
        .find(|container| container.internal_id == id)
        .or_else(|| {
            all.iter()
                .filter(|container| container.id == id)
                .max_by_key(|container| (container.running, container.created))
        })
        .ok_or_else(|| ContainerError::NotFound { id: id.to_owned() })
}

/// Returns the instance of the same container before this one.
pub(crate) fn before<'a>(
    all: &'a [Container],
    chosen: &Container,
) -> Result<&'a Container, ContainerError> {
    all.iter()
        .filter(|other| other.id == chosen.id && other.namespace == chosen.namespace)
        .filter(|other| other.created < chosen.created)
        .max_by_key(|other| other.created)
        .ok_or_else(|| ContainerError::NoPrevious {
            id: chosen.id.clone(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::sample;

    fn instance(internal_id: &str, running: bool, created: i64) -> Container {
        Container {
            id: "a/b:c".to_owned(),
            running,
            created,
            ..sample("k8s.io", internal_id)
        }
    }

    #[test]
    fn an_id_selects_the_running_instance_else_the_newest_and_an_internal_id_its_own() {
        let all = [
            instance("first", false, 1),
            instance("second", true, 2),
            instance("third", false, 3),
        ];
        let chosen = |id| choose(&all, id).map(|c| c.internal_id.as_str());
        assert_eq!(chosen("a/b:c").unwrap(), "second");
        assert_eq!(chosen("first").unwrap(), "first");
        let stopped = [instance("old", false, 1), instance("new", false, 2)];
        assert_eq!(choose(&stopped, "a/b:c").unwrap().internal_id, "new");
        let error = choose(&all, "x").unwrap_err().to_string();
        assert_eq!(error, "container \"x\" not found");
    }

    #[test]
    fn the_previous_instance_is_the_next_older_one() {
        let all = [
            instance("first", false, 1),
            instance("second", false, 2),
            instance("third", true, 3),
        ];
        let previous = |id| before(&all, choose(&all, id).unwrap());
        assert_eq!(previous("a/b:c").unwrap().internal_id, "second");
        assert_eq!(previous("second").unwrap().internal_id, "first");
        assert!(previous("first").is_err());
    }
}
