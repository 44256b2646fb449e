//! Seccomp profiles of executables.
//!
//! A profile is validated and compiled to a BPF program before the fork; the child only installs
//! it. Nothing in a profile is ignored: an unsupported feature is an error, except for system
//! calls that this machine does not have.
//!
//! Programs of another architecture, which 64-bit machines can often run as well, are killed at
//! their first system call under any profile: the same numbers mean other calls there.

mod builtin;
mod oci;
mod policy;

use std::str::FromStr;
use std::sync::OnceLock;

use rustix::io::{self, Errno};
use seccompiler::sock_filter;
use serde::{Deserialize, Serialize};

pub use oci::BadRule;
use policy::MAX_INSTRUCTIONS;

use crate::sys;

/// Ten times the size of a container runtime's default profile.
pub const MAX_PROFILE_BYTES: usize = 256 << 10;

const BUILTIN: &str = "default";
const UNCONFINED: &str = "unconfined";

/// A valid seccomp profile. A custom one is serialized as the text it was parsed from.
///
/// In records the empty text is [`Profile::Unconfined`], as it was when no profile was the default;
/// requests write `unconfined`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Profile {
    /// The built-in profile.
    #[default]
    Default,
    /// No filter.
    Unconfined,
    Custom(CustomProfile),
}

/// A profile in the JSON of the OCI runtime specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomProfile {
    text: String,
    filter: Filter,
    unknown_calls: Vec<String>,
}

/// A BPF program that decides about each system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Instruction>", into = "Vec<Instruction>")]
pub struct Filter(Vec<sock_filter>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProfile {
    #[error("the seccomp profile has {0} bytes; the maximum is {MAX_PROFILE_BYTES}")]
    TooLong(usize),
    #[error(
        "invalid seccomp profile: {reason}; use \"default\", \"unconfined\" or JSON of the OCI runtime \
         specification"
    )]
    NotJson { reason: String },
    #[error("the seccomp profile uses an unsupported feature")]
    Rule(#[from] BadRule),
    #[error(
        "the seccomp profile exceeds the kernel's maximum of {MAX_INSTRUCTIONS} instructions; give it \
         fewer rules or conditions"
    )]
    TooLarge,
    #[error("seccomp profiles are not supported on {0}")]
    NoArchitecture(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the seccomp filter has {0} instructions; use 1 to {MAX_INSTRUCTIONS}")]
pub struct BadFilter(usize);

impl Profile {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Default => BUILTIN,
            Self::Unconfined => UNCONFINED,
            Self::Custom(custom) => &custom.text,
        }
    }

    /// The BPF program to install, if any.
    pub fn filter(&self) -> Result<Option<Filter>, BadProfile> {
        match self {
            Self::Unconfined => Ok(None),
            Self::Default => Ok(Some(builtin_filter()?.clone())),
            Self::Custom(custom) => Ok(Some(custom.filter.clone())),
        }
    }

    /// System calls that the profile names and this machine does not have. They are ignored, as by
    /// every runtime, because profiles are written for many kernels.
    pub fn unknown_calls(&self) -> &[String] {
        match self {
            Self::Default | Self::Unconfined => &[],
            Self::Custom(custom) => &custom.unknown_calls,
        }
    }
}

/// The filter of the built-in profile, compiled once.
pub(crate) fn builtin_filter() -> Result<&'static Filter, BadProfile> {
    static FILTER: OnceLock<Result<Filter, BadProfile>> = OnceLock::new();
    let filter = FILTER.get_or_init(|| builtin::policy().compile());
    filter.as_ref().map_err(BadProfile::clone)
}

impl FromStr for Profile {
    type Err = BadProfile;

    fn from_str(text: &str) -> Result<Self, BadProfile> {
        match text {
            "" | BUILTIN => Ok(Self::Default),
            UNCONFINED => Ok(Self::Unconfined),
            long if long.len() > MAX_PROFILE_BYTES => Err(BadProfile::TooLong(long.len())),
            text => {
                let (policy, unknown_calls) = oci::read(text)?;
                Ok(Self::Custom(CustomProfile {
                    text: text.to_owned(),
                    filter: policy.compile()?,
                    unknown_calls,
                }))
            }
        }
    }
}

impl TryFrom<String> for Profile {
    type Error = BadProfile;

    fn try_from(text: String) -> Result<Self, BadProfile> {
        match text.as_str() {
            "" => Ok(Self::Unconfined),
            text => text.parse(),
        }
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Custom(custom) => custom.text,
            Profile::Default => BUILTIN.to_owned(),
            // Older daemons read `unconfined` as an invalid profile.
            Profile::Unconfined => String::new(),
        }
    }
}

impl Filter {
    /// Installs the filter in the calling thread, irrevocably, with no_new_privs: without that, only
    /// a process with `SYS_ADMIN` may install one.
    ///
    /// The last step before exec, because the profile applies to every later call. Allocates
    /// nothing, so a forked process may call it.
    pub fn install(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
            }
            _ => Errno::INVAL,
        })
    }

    /// Installs the filter in the calling thread without no_new_privs, which needs `SYS_ADMIN`.
    ///
    /// Allocates nothing, so a forked process may call it.
    pub(crate) fn install_privileged(&self) -> io::Result<()> {
        sys::install_filter(&self.0)
    }

    pub fn instructions(&self) -> &[sock_filter] {
        &self.0
    }
}

/// The serialized form of an instruction.
type Instruction = (u16, u8, u8, u32);

impl TryFrom<Vec<Instruction>> for Filter {
    type Error = BadFilter;

    fn try_from(instructions: Vec<Instruction>) -> Result<Self, BadFilter> {
        // The kernel takes the length as 16 bits.
        if !(1..=MAX_INSTRUCTIONS).contains(&instructions.len()) {
            return Err(BadFilter(instructions.len()));
        }
        let plain = |(code, jt, jf, k)| sock_filter { code, jt, jf, k };
        Ok(Self(instructions.into_iter().map(plain).collect()))
    }
}

impl From<Filter> for Vec<Instruction> {
    fn from(filter: Filter) -> Self {
        let plain = |one: sock_filter| (one.code, one.jt, one.jf, one.k);
        filter.0.into_iter().map(plain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> BadProfile {
        text.parse::<Profile>().unwrap_err()
    }

    fn rule(text: &str) -> BadRule {
        match refused(text) {
            BadProfile::Rule(bad) => bad,
            other => panic!("{text}: {other}"),
        }
    }

    /// A profile with this one rule.
    fn with_rule(rule: &str) -> String {
        format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{{rule}}}]}}"#)
    }

    fn with_argument(argument: &str) -> String {
        let rule = r#""names":["read"],"action":"SCMP_ACT_LOG","args":"#;
        with_rule(&format!("{rule}[{{{argument}}}]"))
    }

    #[test]
    fn an_invalid_profile_is_refused() {
        for bad in [
            " ",
            "Default",
            "default ",
            "{}",
            "[]",
            "null",
            r#"{"defaultAction":5}"#,
            r#"{"defaultAction":"SCMP_ACT_ALLOW"} x"#,
            r#"{"defaultAction":"SCMP_ACT_ALLOW","archMap":[]}"#,
            r#"{"defaultAction":"SCMP_ACT_ALLOW","defaultErrnoRet":-1}"#,
            r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{}]}"#,
        ] {
            let error = refused(bad);
            assert!(
                matches!(error, BadProfile::NotJson { .. }),
                "{bad}: {error}"
            );
        }
        let conditional = r#""names":["bpf"],"action":"SCMP_ACT_ALLOW","includes":{"caps":[]}"#;
        let error = refused(&with_rule(conditional)).to_string();
        assert!(error.contains("includes"), "{error}");
        let huge = format!("{{\"{}\":1}}", "x".repeat(MAX_PROFILE_BYTES - 10));
        assert!(refused(&huge).to_string().len() < 400);
        let deep = "[".repeat(MAX_PROFILE_BYTES);
        assert!(matches!(refused(&deep), BadProfile::NotJson { .. }));
        let long = " ".repeat(MAX_PROFILE_BYTES + 1);
        assert_eq!(refused(&long), BadProfile::TooLong(MAX_PROFILE_BYTES + 1));
    }

    #[test]
    fn an_unsupported_feature_is_an_error() {
        use BadRule as Bad;
        let allow = r#"{"defaultAction":"SCMP_ACT_ALLOW","#;
        let top = |rest: &str| rule(&format!("{allow}{rest}}}"));
        assert!(matches!(
            top(r#""flags":["SECCOMP_FILTER_FLAG_LOG"]"#),
            Bad::Flag { .. }
        ));
        assert_eq!(top(r#""listenerPath":"/run/x""#), Bad::Notify);
        assert!(matches!(
            top(r#""defaultErrnoRet":1"#),
            Bad::ErrnoUnused { .. }
        ));
        assert!(matches!(
            top(r#""architectures":["X86_64"]"#),
            Bad::Architecture { .. }
        ));
        let other = r#""architectures":["SCMP_ARCH_S390X"]"#;
        assert!(matches!(top(other), Bad::OtherMachine { .. }));
        assert_eq!(rule(r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#), Bad::Notify);
        let action = r#"{"defaultAction":"ALLOW"}"#;
        assert!(matches!(rule(action), Bad::Action { .. }));

        let errno = with_rule(r#""names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":4096"#);
        assert_eq!(rule(&errno), Bad::Errno(4096));
        let unnamed = with_rule(r#""names":[],"action":"SCMP_ACT_LOG""#);
        assert_eq!(rule(&unnamed), Bad::NoNames);

        let bad = |argument: &str| rule(&with_argument(argument));
        assert_eq!(
            bad(r#""index":6,"value":1,"op":"SCMP_CMP_EQ""#),
            Bad::Argument(6)
        );
        assert_eq!(
            bad(r#""index":256,"value":1,"op":"SCMP_CMP_EQ""#),
            Bad::Argument(256)
        );
        let operator = r#""index":0,"value":1,"op":"EQ""#;
        assert!(matches!(bad(operator), Bad::Operator { .. }));
        let unused = r#""index":0,"value":1,"valueTwo":2,"op":"SCMP_CMP_EQ""#;
        assert!(matches!(bad(unused), Bad::ValueUnused { .. }));
        let never = r#""index":0,"value":4,"valueTwo":5,"op":"SCMP_CMP_MASKED_EQ""#;
        assert!(matches!(bad(never), Bad::NeverEqual { .. }));
        let equal = r#"{"index":1,"value":1,"op":"SCMP_CMP_EQ"}"#;
        let twice = format!(r#""names":["read"],"action":"SCMP_ACT_LOG","args":[{equal},{equal}]"#);
        assert_eq!(rule(&with_rule(&twice)), Bad::ArgumentTwice(1));
    }

    #[test]
    fn a_profile_of_a_container_runtime_is_accepted() {
        let text = r#"{
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"],
            "flags": ["SECCOMP_FILTER_FLAG_TSYNC"],
            "syscalls": [
                {"names": ["read", "write", "of_another_kernel"], "action": "SCMP_ACT_ALLOW",
                 "args": null, "comment": ""},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                    {"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
                {"names": ["ptrace"], "action": "SCMP_ACT_KILL_PROCESS"}
            ]
        }"#;
        let profile: Profile = text.parse().unwrap();
        assert_eq!(profile.unknown_calls(), ["of_another_kernel"]);
        assert_eq!(profile.as_str(), text);
        assert!(profile.filter().unwrap().is_some());
        let kept = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&kept).unwrap(), profile);
    }

    #[test]
    fn a_profile_may_name_every_system_call() {
        let all: Vec<_> = syscalls::Sysno::iter().map(|call| call.name()).collect();
        let profile = serde_json::json!({
            "defaultAction": "SCMP_ACT_KILL_PROCESS",
            "syscalls": [
                {"names": all, "action": "SCMP_ACT_LOG"},
                {"names": all, "action": "SCMP_ACT_ALLOW"},
            ],
        });
        let profile: Profile = profile.to_string().parse().unwrap();
        assert!(profile.unknown_calls().is_empty());
    }

    #[test]
    fn profiles_are_serialized_as_their_text() {
        for (profile, kept) in [
            (Profile::Unconfined, r#""""#),
            (Profile::Default, r#""default""#),
        ] {
            assert_eq!(serde_json::to_string(&profile).unwrap(), kept);
            assert_eq!(serde_json::from_str::<Profile>(kept).unwrap(), profile);
        }
        assert!(serde_json::from_str::<Profile>(r#""{}""#).is_err());
    }

    #[test]
    fn a_request_without_a_profile_gets_the_default_one() {
        assert_eq!("".parse(), Ok(Profile::Default));
        assert_eq!(Profile::default(), Profile::Default);
        for text in ["default", "unconfined"] {
            assert_eq!(text.parse::<Profile>().unwrap().as_str(), text);
        }
        assert_eq!(Profile::Unconfined.filter(), Ok(None));
    }

    #[test]
    fn a_filter_survives_serialization() {
        let filter = Profile::Default.filter().unwrap().unwrap();
        let sent = serde_json::to_vec(&filter).unwrap();
        assert_eq!(serde_json::from_slice::<Filter>(&sent).unwrap(), filter);
        assert!(serde_json::from_str::<Filter>("[]").is_err());
        let long = vec![(6_u16, 0_u8, 0_u8, 0_u32); MAX_INSTRUCTIONS + 1];
        assert_eq!(Filter::try_from(long), Err(BadFilter(MAX_INSTRUCTIONS + 1)));
    }

    proptest! {
        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,200}") {
            let _ = text.parse::<Profile>();
        }

        #[test]
        fn parsing_any_rule_does_not_panic(
            action in "SCMP_ACT_(ALLOW|ERRNO|LOG|KILL|TRACE|NOTIFY|)",
            errno in prop::option::of(any::<u32>()),
            operator in "SCMP_CMP_(EQ|NE|LT|LE|GT|GE|MASKED_EQ|)",
            (index, value, value_two) in (0..8_u32, any::<u64>(), any::<u64>()),
            name in "read|clone|_|",
        ) {
            let rule = serde_json::json!({
                "names": [name],
                "action": action,
                "errnoRet": errno,
                "args": [{"index": index, "value": value, "valueTwo": value_two, "op": operator}],
            });
            let profile = serde_json::json!({"defaultAction": action, "syscalls": [rule]});
            let _ = profile.to_string().parse::<Profile>();
        }
    }
}
