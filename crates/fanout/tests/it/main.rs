//! The merge of answers, against the plain way of doing it: decode, merge, encode.

#![allow(clippy::unwrap_used)]

mod contract;
mod merge;
mod target;

use mainstay_fanout::Contract;

/// The contract that nodes speak.
fn real_contract() -> Contract {
    Contract::from_descriptors(mainstay_api::FILE_DESCRIPTOR_SET)
}
