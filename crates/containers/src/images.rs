//! Names of images: a tag rather than a digest.

use std::collections::HashMap;

/// True if a reference has a tag.
pub(crate) fn has_tag(reference: &str) -> bool {
    let last = reference.rsplit('/').next().unwrap_or_default();
    !is_digest(reference) && !reference.contains('@') && last.contains(':')
}

fn is_digest(reference: &str) -> bool {
    reference.starts_with("sha256:") || reference.starts_with("sha512:")
}

/// The tag of each image, by all its other names.
#[derive(Debug, Default)]
pub(crate) struct Tags(HashMap<String, String>);

impl Tags {
    /// Adds an image by all its names.
    pub(crate) fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str> + Clone) {
        let tags = names.clone().into_iter().filter(|name| has_tag(name));
        let Some(tag) = tags.min() else { return };
        for name in names {
            self.0.insert(name.to_owned(), tag.to_owned());
        }
    }

    /// Returns the tag of an image, else `reference` itself.
    pub(crate) fn name(&self, reference: &str) -> String {
        if has_tag(reference) {
            return reference.to_owned();
        }
        let tag = self.0.get(reference);
        tag.map_or_else(|| reference.to_owned(), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_tag_and_a_digest_is_none_either() {
        for tagged in [
            "busybox:1",
            "host:5000/a/b:v1",
            "example.org/library/x:latest",
        ] {
            assert!(has_tag(tagged), "{tagged}");
        }
        for not in [
            "",
            "busybox",
            "host:5000/a/b",
            "sha256:00ff",
            "a/b@sha256:00ff",
            "a:1@sha256:0",
        ] {
            assert!(!has_tag(not), "{not}");
        }
    }

    #[test]
    fn a_digest_is_shown_as_its_tag_where_there_is_one() {
        let mut tags = Tags::default();
        tags.add(["sha256:00ff", "a/b@sha256:0101", "a/b:2", "a/b:1"]);
        tags.add(["sha256:eeee", "c/d@sha256:eeee"]);
        assert_eq!(tags.name("sha256:00ff"), "a/b:1");
        assert_eq!(tags.name("a/b@sha256:0101"), "a/b:1");
        assert_eq!(tags.name("a/b:2"), "a/b:2");
        assert_eq!(tags.name("sha256:eeee"), "sha256:eeee");
        assert_eq!(tags.name("sha256:unknown"), "sha256:unknown");
    }
}
