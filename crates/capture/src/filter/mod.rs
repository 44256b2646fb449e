//! Filter expressions in the language of tcpdump, compiled to classic BPF.
//!
//! The common primitives of pcap-filter(7) are supported: protocols, hosts, networks, ports and
//! lengths, with `and`, `or`, `not` and parentheses. The rest of the language is refused, never
//! guessed; a program compiled by `tcpdump -dd` can be used instead. Tests compare the verdicts with
//! those of programs that libpcap compiled.

mod emit;
#[cfg(test)]
mod interpreter;
mod parse;
#[cfg(test)]
mod tests;

use crate::{Instruction, LinkType, MAX_INSTRUCTIONS};

/// Longer expressions are refused.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    #[error("the filter is too long; the limit is {MAX_EXPRESSION_BYTES} bytes")]
    TooLong,
    #[error("the filter is nested too deeply")]
    TooDeep,
    #[error("the filter compiles to {0} instructions; the kernel accepts {MAX_INSTRUCTIONS}")]
    TooLarge(usize),
    #[error("the filter ends where {expected} is expected")]
    Ends { expected: &'static str },
    #[error(
        "unexpected {found:?} in the filter where {expected} is expected; a filter that tcpdump \
         knows and this does not can be given as a program: --bpf \"$(tcpdump -dd FILTER)\""
    )]
    Unexpected {
        found: String,
        expected: &'static str,
    },
    #[error("{0:?} in the filter is not an address of that protocol")]
    WrongFamily(String),
    #[error("packets of link type raw have no {0}")]
    NotOnLink(&'static str),
}

/// Compiles an expression for packets of a link type; the program keeps `snap_len` bytes of the
/// packets that it accepts.
pub fn compile(
    expression: &str,
    link: LinkType,
    snap_len: u32,
) -> Result<Vec<Instruction>, BadFilter> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(BadFilter::TooLong);
    }
    let parsed = parse::parse(expression)?;
    let program = emit::emit(&parsed, link, snap_len)?;
    if program.len() > MAX_INSTRUCTIONS {
        return Err(BadFilter::TooLarge(program.len()));
    }
    Ok(program)
}
