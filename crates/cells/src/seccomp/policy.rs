//! A seccomp policy and its compilation to BPF.
//!
//! The strictest rule that matches a call decides; without one, the default does. The result is one
//! program: of several, the first could refuse the call that installs the next.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::{BadProfile, Filter};

/// `BPF_MAXINSNS` of the kernel.
pub(super) const MAX_INSTRUCTIONS: usize = 4096;

/// The longest chain of comparisons with system call numbers in the leaf of a search. The kernel
/// runs a new filter once for every number, so installing one chain of 50 takes 70 µs instead of 30.
const MAX_CHAIN: usize = 6;

/// Marks "the next part decides" during compilation. No policy can contain it: its actions carry
/// errno values.
const NEXT: SeccompAction = SeccompAction::Trace(0xffff);

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) default: SeccompAction,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// The system call number on this machine.
    pub(super) call: i64,
    /// All of these must hold; an empty list always matches.
    pub(super) conditions: Vec<SeccompCondition>,
    pub(super) action: SeccompAction,
}

/// The rules with one action, by system call; an empty list always matches.
struct Part {
    action: SeccompAction,
    calls: BTreeMap<i64, Vec<SeccompRule>>,
}

impl Policy {
    pub(super) fn compile(self) -> Result<Filter, BadProfile> {
        let architecture =
            TargetArch::try_from(ARCH).map_err(|_| BadProfile::NoArchitecture(ARCH))?;
        // Each rule compiles to at least one instruction.
        if self.rules.len() > MAX_INSTRUCTIONS {
            return Err(BadProfile::TooLarge);
        }
        let parts = parts(self.rules)?;
        // A search takes more instructions than a chain, which fits a larger profile.
        for max_chain in [MAX_CHAIN, usize::MAX] {
            let mut program = refuse_x32(architecture);
            for part in &parts {
                program.append(&mut search(
                    &part.action,
                    &part.calls,
                    architecture,
                    max_chain,
                )?);
            }
            let last =
                SeccompFilter::new(BTreeMap::new(), self.default.clone(), NEXT, architecture);
            program.append(&mut compile(last)?);
            if program.len() <= MAX_INSTRUCTIONS {
                return Ok(Filter(program));
            }
        }
        Err(BadProfile::TooLarge)
    }
}

/// Compiles rules with one action to a binary search for the number of the call, which ends in a
/// chain. A call without a matching rule continues behind the program.
fn search(
    action: &SeccompAction,
    calls: &BTreeMap<i64, Vec<SeccompRule>>,
    architecture: TargetArch,
    max_chain: usize,
) -> Result<BpfProgram, BadProfile> {
    let middle = calls.keys().nth(calls.len() / 2);
    let (Some(&middle), true) = (middle, calls.len() > max_chain) else {
        let chain = SeccompFilter::new(calls.clone(), NEXT, action.clone(), architecture);
        return Ok(open_ended(compile(chain)?));
    };
    let mut lower = calls.clone();
    let upper = lower.split_off(&middle);
    let mut lower = search(action, &lower, architecture, max_chain)?;
    let mut upper = search(action, &upper, architecture, max_chain)?;
    lower.push(jump_over(upper.len()));
    let mut program = vec![
        operation(LOAD, CALL_NUMBER),
        sock_filter {
            code: JUMP_IF_AT_LEAST,
            jt: 0,
            jf: 1,
            k: u32::try_from(middle).map_err(|_| BadProfile::TooLarge)?,
        },
        jump_over(lower.len()),
    ];
    program.append(&mut lower);
    program.append(&mut upper);
    Ok(program)
}

/// Groups rules by action, the strictest first.
fn parts(rules: Vec<Rule>) -> Result<Vec<Part>, BadProfile> {
    let mut parts = BTreeMap::new();
    for rule in rules {
        // The kernel's action values, as signed integers, grow with leniency.
        let strictness = u32::from(rule.action.clone()).cast_signed();
        let part = parts.entry(strictness).or_insert_with(|| Part {
            action: rule.action,
            calls: BTreeMap::new(),
        });
        if rule.conditions.is_empty() {
            part.calls.insert(rule.call, Vec::new());
            continue;
        }
        let conditions = SeccompRule::new(rule.conditions).map_err(failed)?;
        part.calls
            .entry(rule.call)
            // An unconditional rule stays unconditional.
            .and_modify(|rules| {
                if !rules.is_empty() {
                    rules.push(conditions.clone());
                }
            })
            .or_insert_with(|| vec![conditions]);
    }
    Ok(parts.into_values().collect())
}

fn compile(filter: Result<SeccompFilter, BackendError>) -> Result<BpfProgram, BadProfile> {
    filter.and_then(BpfProgram::try_from).map_err(failed)
}

/// Size is the only reason left for which a filter can be refused.
fn failed(_: BackendError) -> BadProfile {
    BadProfile::TooLarge
}

/// Replaces each return of [`NEXT`] by a jump behind the end of the program.
fn open_ended(mut program: BpfProgram) -> BpfProgram {
    let next = u32::from(NEXT);
    let length = program.len();
    for (at, instruction) in program.iter_mut().enumerate() {
        if instruction.code == RETURN && instruction.k == next {
            *instruction = jump_over(length - 1 - at);
        }
    }
    program
}

/// Refuses the x32 system call numbers with ENOSYS, as kernels without x32 do: no rule names them,
/// so they would bypass every rule.
fn refuse_x32(architecture: TargetArch) -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    const ENOSYS: u32 = 38;
    match architecture {
        TargetArch::x86_64 => vec![
            operation(LOAD, CALL_NUMBER),
            sock_filter {
                code: JUMP_IF_AT_LEAST,
                jt: 0,
                jf: 1,
                k: X32,
            },
            operation(RETURN, u32::from(SeccompAction::Errno(ENOSYS))),
        ],
        TargetArch::aarch64 | TargetArch::riscv64 => Vec::new(),
    }
}

// Opcodes of the instructions that are emitted here: BPF_LD | BPF_W | BPF_ABS,
// BPF_JMP | BPF_JA, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Offset of the system call number in `struct seccomp_data`.
const CALL_NUMBER: u32 = 0;

/// A jump over the next instructions.
fn jump_over(count: usize) -> sock_filter {
    operation(JUMP, u32::try_from(count).unwrap_or(u32::MAX))
}

fn operation(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use seccompiler::{SeccompCmpArgLen as Length, SeccompCmpOp as Operator};

    /// A `struct seccomp_data`.
    #[derive(Debug, Clone)]
    struct Call {
        number: u32,
        architecture: u32,
        arguments: [u64; 6],
    }

    const OWN: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };

    /// Interprets a program as the kernel does.
    fn run(program: &[sock_filter], call: &Call) -> u32 {
        let mut data = [0_u32; 16];
        (data[0], data[1]) = (call.number, call.architecture);
        for (at, argument) in call.arguments.iter().enumerate() {
            data[4 + 2 * at] = (argument & 0xffff_ffff) as u32;
            data[5 + 2 * at] = (argument >> 32) as u32;
        }
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match code {
                LOAD => loaded = data[k as usize / 4],
                0x54 => loaded &= k,
                JUMP => at += k as usize,
                0x15 => at += jump(loaded == k),
                0x25 => at += jump(loaded > k),
                JUMP_IF_AT_LEAST => at += jump(loaded >= k),
                RETURN => return k,
                other => panic!("no such instruction: {other:#x}"),
            }
        }
    }

    /// A rule whose conditions can be inspected.
    #[derive(Debug, Clone)]
    struct Plain {
        call: u32,
        conditions: Vec<(u8, Operator, u64)>,
        action: SeccompAction,
    }

    impl Plain {
        fn rule(&self) -> Rule {
            let condition = |(index, operator, value): &(u8, Operator, u64)| {
                SeccompCondition::new(*index, Length::Qword, operator.clone(), *value).unwrap()
            };
            Rule {
                call: self.call.into(),
                conditions: self.conditions.iter().map(condition).collect(),
                action: self.action.clone(),
            }
        }

        fn matches(&self, call: &Call) -> bool {
            let holds = |(index, operator, value): &(u8, Operator, u64)| {
                let given = call.arguments[usize::from(*index)];
                match operator {
                    Operator::Eq => given == *value,
                    Operator::Ne => given != *value,
                    Operator::Lt => given < *value,
                    Operator::Le => given <= *value,
                    Operator::Gt => given > *value,
                    Operator::Ge => given >= *value,
                    Operator::MaskedEq(mask) => given & mask == value & mask,
                }
            };
            self.call == call.number && self.conditions.iter().all(holds)
        }
    }

    fn actions() -> impl Strategy<Value = SeccompAction> {
        prop_oneof![
            Just(SeccompAction::Allow),
            Just(SeccompAction::Log),
            Just(SeccompAction::Trap),
            Just(SeccompAction::KillThread),
            Just(SeccompAction::KillProcess),
            (0..3_u32).prop_map(SeccompAction::Errno),
            (0..3_u32).prop_map(SeccompAction::Trace),
        ]
    }

    /// Few enough values that they collide, with differences in both halves.
    fn values() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..4_u64,
            (0..3_u64, 0..3_u64).prop_map(|(high, low)| high << 32 | low),
            Just(u64::MAX),
        ]
    }

    fn operators() -> impl Strategy<Value = Operator> {
        prop_oneof![
            Just(Operator::Eq),
            Just(Operator::Ne),
            Just(Operator::Lt),
            Just(Operator::Le),
            Just(Operator::Gt),
            Just(Operator::Ge),
            values().prop_map(Operator::MaskedEq),
        ]
    }

    /// Few, or more than one chain holds.
    fn numbers() -> impl Strategy<Value = u32> {
        prop_oneof![0..5_u32, 0..30_u32]
    }

    fn rules() -> impl Strategy<Value = Vec<Plain>> {
        let conditions = prop::collection::vec((0..6_u8, operators(), values()), 0..4);
        let rule =
            (numbers(), conditions, actions()).prop_map(|(call, conditions, action)| Plain {
                call,
                conditions,
                action,
            });
        prop::collection::vec(rule, 0..40)
    }

    fn calls() -> impl Strategy<Value = Call> {
        let arguments = prop::array::uniform6(values());
        (numbers(), arguments).prop_map(|(number, arguments)| Call {
            number,
            architecture: OWN,
            arguments,
        })
    }

    fn compiled(default: SeccompAction, rules: &[Plain]) -> Filter {
        let rules = rules.iter().map(Plain::rule).collect();
        Policy { default, rules }.compile().unwrap()
    }

    #[test]
    fn foreign_architectures_and_x32_numbers_do_not_bypass_the_policy() {
        let refused = Plain {
            call: 1,
            conditions: Vec::new(),
            action: SeccompAction::Errno(1),
        };
        for rules in [vec![], vec![refused]] {
            let filter = compiled(SeccompAction::Allow, &rules);
            let mut call = Call {
                number: 1,
                architecture: 0x4000_0003,
                arguments: [0; 6],
            };
            let killed = u32::from(SeccompAction::KillProcess);
            assert_eq!(run(&filter.0, &call), killed);
            call.architecture = OWN;
            call.number |= 0x4000_0000;
            if cfg!(target_arch = "x86_64") {
                let missing = u32::from(SeccompAction::Errno(38));
                assert_eq!(run(&filter.0, &call), missing);
            }
        }
    }

    #[test]
    fn the_builtin_profile_compares_the_bits_the_kernel_reads() {
        let filter = crate::seccomp::builtin::policy().compile().unwrap();
        let decided = |name: &str, arguments: [u64; 2]| {
            let number: syscalls::Sysno = name.parse().unwrap();
            let [first, second] = arguments;
            let call = Call {
                number: number.id().cast_unsigned(),
                architecture: OWN,
                arguments: [first, second, 0, 0, 0, 0],
            };
            run(&filter.0, &call)
        };
        let refused = u32::from(SeccompAction::Errno(1));
        let allowed = u32::from(SeccompAction::Allow);
        assert_eq!(decided("mount", [0, 0]), refused);
        let missing = u32::from(SeccompAction::Errno(38));
        assert_eq!(decided("clone3", [0, 0]), missing);
        assert_eq!(decided("ptrace", [0, 0]), allowed);
        // A thread, and a child that ends with SIGCHLD, as the C library makes them.
        assert_eq!(decided("clone", [0x003d_0f00, 0]), allowed);
        assert_eq!(decided("clone", [0x0120_0011, 0]), allowed);
        assert_eq!(decided("unshare", [0x400, 0]), allowed);
        assert_eq!(decided("socket", [1, 0]), allowed);
        assert_eq!(decided("ioctl", [0, 0x5413]), allowed);
        // Also among other flags, and with anything in the half that the kernel drops.
        for high in [0, 1 << 32, u64::MAX << 32] {
            assert_eq!(decided("clone", [high | 0x1000_0011, 0]), refused);
            assert_eq!(decided("clone", [high | 0x0002_0011, 0]), refused);
            assert_eq!(decided("unshare", [high | 0x80, 0]), refused);
            assert_eq!(decided("socket", [high | 40, 0]), refused);
            assert_eq!(decided("ioctl", [0, high | 0x5412]), refused);
        }
    }

    #[test]
    fn a_program_beyond_the_kernel_maximum_is_an_error() {
        let rule = Plain {
            call: 1,
            conditions: vec![(0, Operator::Eq, 1)],
            action: SeccompAction::Log,
        };
        for many in [900, MAX_INSTRUCTIONS + 1] {
            let policy = Policy {
                default: SeccompAction::Allow,
                rules: vec![rule.rule(); many],
            };
            assert_eq!(policy.compile(), Err(BadProfile::TooLarge));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_strictest_rule_that_matches_decides(
            default in actions(),
            rules in rules(),
            calls in prop::collection::vec(calls(), 1..8),
        ) {
            let filter = compiled(default.clone(), &rules);
            for call in &calls {
                let decided = rules
                    .iter()
                    .filter(|rule| rule.matches(call))
                    .map(|rule| u32::from(rule.action.clone()))
                    .min_by_key(|action| action.cast_signed())
                    .unwrap_or_else(|| default.clone().into());
                prop_assert_eq!(run(&filter.0, call), decided, "{:?}", call);
            }
        }
    }
}
