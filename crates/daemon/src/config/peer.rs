//! An entry of `[peers]`: an address, or a table with an address and what the node may assert.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{MaxRole, PeerAddress};

const KEYS: &[&str] = &["address", "max_role"];

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub address: PeerAddress,
    pub max_role: Option<MaxRole>,
}

impl<'de> Deserialize<'de> for Peer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PeerVisitor)
    }
}

/// An untagged enum would hide what is wrong with a value.
struct PeerVisitor;

impl<'de> Visitor<'de> for PeerVisitor {
    type Value = Peer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address of a node, or a table with `address` and `max_role`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Peer, E> {
        Ok(Peer {
            address: text.parse().map_err(E::custom)?,
            max_role: None,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Peer, A::Error> {
        let (mut address, mut max_role) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "address" => address = Some(map.next_value()?),
                "max_role" => max_role = Some(map.next_value()?),
                other => return Err(A::Error::unknown_field(other, KEYS)),
            }
        }
        Ok(Peer {
            address: address.ok_or_else(|| A::Error::missing_field("address"))?,
            max_role,
        })
    }
}

impl Serialize for Peer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(max_role) = &self.max_role else {
            return self.address.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(KEYS.len()))?;
        map.serialize_entry("address", &self.address)?;
        map.serialize_entry("max_role", max_role)?;
        map.end()
    }
}
