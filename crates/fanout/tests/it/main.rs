//! The byte-level merge of answers compared with decoding, merging and encoding them.

#![allow(clippy::unwrap_used)]

mod contract;
mod merge;
mod target;

use mainstay_fanout::Contract;

/// The contract that nodes speak.
fn real_contract() -> Contract {
    Contract::from_descriptors(mainstay_api::FILE_DESCRIPTOR_SET)
}
