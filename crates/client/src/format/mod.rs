//! Values of answers as text and JSON. Nothing here writes to a terminal.

mod counts;
mod message;
mod sizes;
mod table;
mod terminal;
mod times;

pub use counts::counted;
pub use message::{json_of_bytes, to_json};
pub use sizes::{cpu_time, parse_size, percent, size};
pub use table::Table;
pub use terminal::{TerminalFilter, json_for_terminal, printable, printable_lines};
pub use times::{duration, local_time, parse_duration, parse_time, wire_time};
