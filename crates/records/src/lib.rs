//! Records on disk: small files that are replaced as a whole, and the version they carry.
//!
//! [`write_durable`] is the one writer for files that must survive power loss;
//! [`write_runtime`] replaces a file as atomically but leaves out the fsync, for records that
//! mean nothing after a reboot. [`read`] and [`decode`] read JSON records: older format versions
//! and unknown fields are accepted, newer major versions are refused before their fields are
//! looked at.
//!
//! The shim links this crate, so it depends on nothing that needs a runtime.

mod atomic;
mod error;
mod json;
mod temporary;

pub use atomic::{sync_directory, write_durable, write_durable_for, write_runtime};
pub use error::RecordError;
pub use json::{UNVERSIONED, decode, encode, read};
pub use temporary::{is_temporary, is_temporary_of, remove_temporaries_of, runtime_temporary_path};
