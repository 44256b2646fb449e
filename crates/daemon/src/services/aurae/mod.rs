//! `aurae.*`: the same engines for later clients.

mod cells;
mod discovery;
mod observe;

pub(super) use discovery::Discovery;
