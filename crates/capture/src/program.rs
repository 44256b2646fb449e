//! Filter programs: classic BPF instructions, and their text form.

/// The most instructions that the kernel accepts.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// One instruction of classic BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub op: u16,
    /// Instructions to skip if a comparison holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    pub k: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProgram {
    #[error(
        "line {line} of the filter program is not an instruction; write it as tcpdump -dd prints \
         it: {{ 0x28, 0, 0, 0x0000000c }},"
    )]
    Line { line: usize },
    #[error("the filter program has no instructions")]
    Empty,
    #[error("the filter program has {0} instructions; the kernel accepts {MAX_INSTRUCTIONS}")]
    TooLong(usize),
}

/// Parses a program in the form that `tcpdump -dd` prints.
pub fn parse_program(text: &str) -> Result<Vec<Instruction>, BadProgram> {
    let mut program = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        program.push(parse_line(line).ok_or(BadProgram::Line { line: index + 1 })?);
        if program.len() > MAX_INSTRUCTIONS {
            return Err(BadProgram::TooLong(text.lines().count()));
        }
    }
    if program.is_empty() {
        return Err(BadProgram::Empty);
    }
    Ok(program)
}

fn parse_line(line: &str) -> Option<Instruction> {
    let line = line.trim().trim_end_matches(',');
    let inner = line.strip_prefix('{')?.strip_suffix('}')?;
    let mut fields = inner.split(',').map(|field| number(field.trim()));
    let mut next = || fields.next().flatten();
    let instruction = Instruction {
        op: u16::try_from(next()?).ok()?,
        jt: u8::try_from(next()?).ok()?,
        jf: u8::try_from(next()?).ok()?,
        k: next()?,
    };
    fields.next().is_none().then_some(instruction)
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        // `from_str_radix` would take a sign too.
        Some(digits) if digits.starts_with(['+', '-']) => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_output_of_tcpdump_is_parsed() {
        let text =
            "{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 1, 0x00000800 },\n\n{ 0x6, 0, 0, 0x0 },";
        let program = parse_program(text).unwrap();
        assert_eq!(program.len(), 3);
        let second = Instruction {
            op: 0x15,
            jt: 0,
            jf: 1,
            k: 0x800,
        };
        assert_eq!(program[1], second);
    }

    #[test]
    fn what_is_no_program_is_refused_with_its_line() {
        for text in [
            "tcp port 80",
            "{ 1, 2, 3 },",
            "{ 1, 2, 3, 4, 5 }",
            "{ 1, 256, 0, 0 }",
        ] {
            assert_eq!(
                parse_program(text),
                Err(BadProgram::Line { line: 1 }),
                "{text}"
            );
        }
        assert_eq!(parse_program(" \n"), Err(BadProgram::Empty));
        let long = "{ 6, 0, 0, 0 },\n".repeat(MAX_INSTRUCTIONS + 1);
        assert_eq!(
            parse_program(&long),
            Err(BadProgram::TooLong(MAX_INSTRUCTIONS + 1))
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[{}0-9a-fx, \n+-]{0,80}") {
            let _ = parse_program(&text);
        }
    }
}
