//! `aurae.*`: the same engines for later clients.

mod cells;
mod discovery;
mod observe;
mod signals;

pub(super) use discovery::Discovery;
