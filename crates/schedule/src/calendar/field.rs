//! One field of an expression as a set of numbers below 64.

/// A set of numbers from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) fn only(number: u32) -> Self {
        Self(1 << (number & 63))
    }

    pub(super) fn all(first: u32, last: u32) -> Self {
        (first..=last).fold(Self(0), |set, number| set.with(number))
    }

    pub(super) fn with(self, number: u32) -> Self {
        Self(self.0 | (1 << (number & 63)))
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn contains(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| number < 64 && self.0 & (1 << number) != 0)
    }

    /// The smallest number that is at least `from`.
    pub(super) fn at_least(self, from: i8) -> Option<i8> {
        let from = u32::try_from(from).unwrap_or(0);
        let rest = self.0.checked_shr(from)?;
        (rest != 0)
            .then(|| from + rest.trailing_zeros())
            .and_then(|number| i8::try_from(number).ok())
    }

    pub(super) fn first(self) -> Option<i8> {
        self.at_least(0)
    }
}

/// The syntax of a field.
pub(super) struct Syntax {
    pub(super) name: &'static str,
    pub(super) first: u32,
    pub(super) last: u32,
    /// Between the ends of a range: `..` or `-`.
    pub(super) range: &'static str,
    /// Names of the numbers from `first` on.
    pub(super) names: &'static [&'static str],
}

pub(super) const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
pub(super) const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

impl Syntax {
    /// Parses a list of numbers, ranges and steps.
    pub(super) fn parse(&self, text: &str) -> Result<Set, String> {
        let parts = text.split(',').map(|part| self.part(part));
        let mut all = Set(0);
        for part in parts {
            all = all.union(part?);
        }
        Ok(all)
    }

    fn part(&self, part: &str) -> Result<Set, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (first, last) = if range == "*" {
            (self.first, self.last)
        } else if let Some((first, last)) = range.split_once(self.range) {
            (self.number(first)?, self.number(last)?)
        } else {
            let first = self.number(range)?;
            // A step without an end goes on to the last number.
            (first, if step.is_some() { self.last } else { first })
        };
        if first > last {
            return Err(format!("{} {range} is an empty range", self.name));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((first..=last).step_by(step).fold(Set(0), Set::with))
    }

    fn step(&self, text: &str) -> Result<u32, String> {
        let step = text.parse().ok().filter(|step| *step > 0);
        step.ok_or_else(|| format!("the step {text:?} of the {} is no number", self.name))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let Self {
            name, first, last, ..
        } = self;
        let by_name = || {
            let lower = text.to_ascii_lowercase();
            let is_name = |name: &&str| {
                lower.len() >= 3 && lower.starts_with(*name) && full_name(&lower, name)
            };
            let at = self.names.iter().position(is_name)?;
            Some(*first + u32::try_from(at).ok()?)
        };
        let number = match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse().ok(),
            false => by_name(),
        };
        number
            .filter(|number| (*first..=*last).contains(number))
            .ok_or_else(|| format!("the {name} {text:?} is not one of {first} to {last}"))
    }
}

/// Accepts `mon` and `monday`, not `monkey`.
fn full_name(text: &str, short: &str) -> bool {
    const FULL: [&str; 19] = [
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    text == short || FULL.contains(&text)
}
