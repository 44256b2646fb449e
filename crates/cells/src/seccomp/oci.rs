//! Seccomp profiles in the JSON of the OCI runtime specification.

use std::collections::BTreeSet;
use std::env::consts::ARCH;

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};
use serde::Deserialize;
use serde::de::IgnoredAny;
use syscalls::Sysno;

use super::BadProfile;
use super::policy::{Policy, Rule};

const EPERM: u32 = 1;
const MAX_ERRNO: u32 = 4095;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error("unknown action {shown:?}; write SCMP_ACT_ERRNO, for instance")]
    Action { shown: String },
    #[error("SCMP_ACT_NOTIFY and listenerPath are not supported: no process would answer")]
    Notify,
    #[error("invalid errnoRet {0}; use 0 to {MAX_ERRNO}")]
    Errno(u32),
    #[error("errnoRet goes with SCMP_ACT_ERRNO and SCMP_ACT_TRACE, not with {action}")]
    ErrnoUnused { action: String },
    #[error("unknown architecture {shown:?}; write SCMP_ARCH_X86_64, for instance")]
    Architecture { shown: String },
    #[error("architectures lacks {own} of this machine; add it, or leave architectures out")]
    OtherMachine { own: &'static str },
    #[error("flag {shown:?} is not supported; leave it out")]
    Flag { shown: String },
    #[error("a rule has no names; add some, or remove the rule")]
    NoNames,
    #[error("unknown operator {shown:?}; write SCMP_CMP_EQ, for instance")]
    Operator { shown: String },
    #[error("invalid argument index {0}; use 0 to 5")]
    Argument(u32),
    #[error("a rule compares argument {0} twice; write one rule per comparison")]
    ArgumentTwice(u8),
    #[error("valueTwo goes with SCMP_CMP_MASKED_EQ, not with {operator}")]
    ValueUnused { operator: String },
    #[error("valueTwo {value_two:#x} has bits outside the mask {value:#x} and never matches")]
    NeverEqual { value: u64, value_two: u64 },
}

// Unknown fields are an error: ignoring one could weaken the profile. Some writers use `null` for an
// empty list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    default_action: String,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<String>>,
    flags: Option<Vec<String>>,
    listener_path: Option<IgnoredAny>,
    listener_metadata: Option<IgnoredAny>,
    syscalls: Option<Vec<Calls>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Calls {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    #[serde(rename = "comment")]
    _comment: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u32,
    value: u64,
    value_two: Option<u64>,
    op: String,
}

/// Parses a profile: its policy, and the system calls in it that this machine does not have.
pub(super) fn read(text: &str) -> Result<(Policy, Vec<String>), BadProfile> {
    let document: Document = serde_json::from_str(text).map_err(|error| BadProfile::NotJson {
        reason: shown(&error.to_string()),
    })?;
    if document.listener_path.is_some() || document.listener_metadata.is_some() {
        return Err(BadRule::Notify.into());
    }
    check_architectures(document.architectures.as_deref().unwrap_or_default())?;
    check_flags(document.flags.as_deref().unwrap_or_default())?;

    let mut rules = Vec::new();
    let mut unknown = BTreeSet::new();
    for calls in document.syscalls.unwrap_or_default() {
        if calls.names.is_empty() {
            return Err(BadRule::NoNames.into());
        }
        let action = action(&calls.action, calls.errno_ret)?;
        let conditions = conditions(calls.args.as_deref().unwrap_or_default())?;
        // Deduplicated: a name may be listed twice.
        for name in calls.names.into_iter().collect::<BTreeSet<_>>() {
            match name.parse::<Sysno>() {
                Ok(call) => rules.push(Rule {
                    call: call.id().into(),
                    conditions: conditions.clone(),
                    action: action.clone(),
                }),
                Err(()) => {
                    unknown.insert(shown(&name));
                }
            }
        }
    }
    let policy = Policy {
        default: action(&document.default_action, document.default_errno_ret)?,
        rules,
    };
    Ok((policy, unknown.into_iter().collect()))
}

fn action(name: &str, errno: Option<u32>) -> Result<SeccompAction, BadRule> {
    if let Some(errno) = errno.filter(|errno| *errno > MAX_ERRNO) {
        return Err(BadRule::Errno(errno));
    }
    let number = errno.unwrap_or(EPERM);
    let action = match name {
        "SCMP_ACT_ERRNO" => return Ok(SeccompAction::Errno(number)),
        "SCMP_ACT_TRACE" => return Ok(SeccompAction::Trace(number)),
        "SCMP_ACT_ALLOW" => SeccompAction::Allow,
        "SCMP_ACT_LOG" => SeccompAction::Log,
        "SCMP_ACT_TRAP" => SeccompAction::Trap,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => SeccompAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => SeccompAction::KillProcess,
        "SCMP_ACT_NOTIFY" => return Err(BadRule::Notify),
        other => {
            return Err(BadRule::Action {
                shown: shown(other),
            });
        }
    };
    match errno {
        None => Ok(action),
        Some(_) => Err(BadRule::ErrnoUnused {
            action: name.to_owned(),
        }),
    }
}

fn conditions(arguments: &[Argument]) -> Result<Vec<SeccompCondition>, BadRule> {
    let mut seen = BTreeSet::new();
    let mut conditions = Vec::new();
    for argument in arguments {
        let bad_index = BadRule::Argument(argument.index);
        let Ok(index) = u8::try_from(argument.index) else {
            return Err(bad_index);
        };
        // Runtimes disagree whether two comparisons of one argument mean "or" or "and".
        if !seen.insert(index) {
            return Err(BadRule::ArgumentTwice(index));
        }
        let (operator, value) = comparison(argument)?;
        let whole = SeccompCmpArgLen::Qword;
        conditions
            .push(SeccompCondition::new(index, whole, operator, value).map_err(|_| bad_index)?);
    }
    Ok(conditions)
}

fn comparison(argument: &Argument) -> Result<(SeccompCmpOp, u64), BadRule> {
    let value = argument.value;
    let value_two = argument.value_two.unwrap_or(0);
    let operator = match argument.op.as_str() {
        "SCMP_CMP_EQ" => SeccompCmpOp::Eq,
        "SCMP_CMP_NE" => SeccompCmpOp::Ne,
        "SCMP_CMP_LT" => SeccompCmpOp::Lt,
        "SCMP_CMP_LE" => SeccompCmpOp::Le,
        "SCMP_CMP_GT" => SeccompCmpOp::Gt,
        "SCMP_CMP_GE" => SeccompCmpOp::Ge,
        "SCMP_CMP_MASKED_EQ" if value_two & !value != 0 => {
            return Err(BadRule::NeverEqual { value, value_two });
        }
        "SCMP_CMP_MASKED_EQ" => return Ok((SeccompCmpOp::MaskedEq(value), value_two)),
        other => {
            return Err(BadRule::Operator {
                shown: shown(other),
            });
        }
    };
    if value_two == 0 {
        Ok((operator, value))
    } else {
        Err(BadRule::ValueUnused {
            operator: argument.op.clone(),
        })
    }
}

/// Checks that the machine's own architecture is listed. For others nothing is compiled: their
/// programs are killed at their first call, which is stricter than any profile.
fn check_architectures(listed: &[String]) -> Result<(), BadRule> {
    const KNOWN: [&str; 24] = [
        "X86",
        "X86_64",
        "X32",
        "ARM",
        "AARCH64",
        "MIPS",
        "MIPS64",
        "MIPS64N32",
        "MIPSEL",
        "MIPSEL64",
        "MIPSEL64N32",
        "PPC",
        "PPC64",
        "PPC64LE",
        "S390",
        "S390X",
        "PARISC",
        "PARISC64",
        "RISCV64",
        "LOONGARCH64",
        "M68K",
        "SH",
        "SHEB",
        "NATIVE",
    ];
    let own = match ARCH {
        "x86_64" => "SCMP_ARCH_X86_64",
        "aarch64" => "SCMP_ARCH_AARCH64",
        "riscv64" => "SCMP_ARCH_RISCV64",
        other => other,
    };
    for name in listed {
        let bare = name.strip_prefix("SCMP_ARCH_");
        if !bare.is_some_and(|bare| KNOWN.contains(&bare)) {
            return Err(BadRule::Architecture { shown: shown(name) });
        }
    }
    let native = |name: &String| name == own || name == "SCMP_ARCH_NATIVE";
    if listed.is_empty() || listed.iter().any(native) {
        Ok(())
    } else {
        Err(BadRule::OtherMachine { own })
    }
}

/// Accepts `TSYNC` alone, which has no effect in a process of one thread.
fn check_flags(flags: &[String]) -> Result<(), BadRule> {
    match flags
        .iter()
        .find(|flag| *flag != "SECCOMP_FILTER_FLAG_TSYNC")
    {
        Some(flag) => Err(BadRule::Flag { shown: shown(flag) }),
        None => Ok(()),
    }
}

fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 120;
    text.chars().take(SHOWN_CHARS).collect()
}
