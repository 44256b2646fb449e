//! A cell and those nested in it under one call after the other. This is the whole contract of
//! the five calls in a form that can be executed: a call with its answer leads from one state of
//! the tree to the next, or cannot have been answered so.

use std::collections::BTreeMap;

use super::calls::{Answer, Call, SeenCell, SeenExecutable};
use super::programs::{How, Program};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Tree {
    cells: BTreeMap<String, Cell>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Cell {
    executables: BTreeMap<String, Executable>,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Standing {
    There,
    /// No longer found, but the daemon died while freeing it.
    HalfFreed,
    /// Half freed, and the daemon has restarted: freed, or back with some of its executables.
    Torn,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Executable {
    program: Program,
    runs: u64,
    /// `None` if the answer that told it was lost.
    pid: Option<i32>,
    life: Life,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    /// Unless it has ended by itself.
    Runs,
    /// Asked to end by a call that was broken off: it may or may not. `lost` if that call was
    /// Free, which leaves nobody to see how it ended.
    Doomed {
        lost: bool,
    },
    /// Has ended, one way or another.
    Over {
        lost: bool,
    },
    Ended(How),
}

impl Tree {
    /// All states that the call may have left, if it was answered so.
    pub(super) fn after(&self, call: &Call, answer: &Answer) -> Vec<Self> {
        match call {
            Call::Allocate { cell } => self.allocate(cell, answer),
            Call::Start {
                cell,
                executable,
                program,
            } => self.start(cell, executable, *program, answer),
            Call::Stop {
                cell, executable, ..
            } => self.stop(cell, executable, answer),
            Call::StopPart { cell, executable } => self.stop_part(cell, executable, answer),
            Call::Find { cell } => self.unless(match answer {
                Answer::NoCell => self.has(cell),
                Answer::None => false,
                _ => !self.has(cell),
            }),
            Call::Free { cell } => self.free(cell, answer),
            Call::List { cell } => self.list(cell, answer),
            Call::Crash => vec![self.crash()],
            Call::StopAll { .. } => unreachable!("judged in parts"),
        }
    }

    fn allocate(&self, name: &str, answer: &Answer) -> Vec<Self> {
        let parent = name.rsplit_once('/').map(|(parent, _)| parent);
        let orphan = parent.is_some_and(|parent| !self.has(parent));
        let made = || {
            let mut tree = self.clone();
            // Whatever was half freed there is gone now.
            tree.cells.retain(|other, _| !is_within(other, name));
            let cell = Cell {
                executables: BTreeMap::new(),
                standing: Standing::There,
            };
            tree.cells.insert(name.to_owned(), cell);
            tree
        };
        match answer {
            Answer::Done if !orphan && !self.has(name) => vec![made()],
            Answer::NoCell => self.unless(!orphan),
            Answer::CellExists => self.unless(!self.has(name)),
            Answer::None if !orphan && !self.has(name) => vec![self.clone(), made()],
            Answer::None => vec![self.clone()],
            _ => Vec::new(),
        }
    }

    fn start(&self, cell: &str, name: &str, program: Program, answer: &Answer) -> Vec<Self> {
        let Some(there) = self.find(cell) else {
            return self.unless(!matches!(answer, Answer::NoCell | Answer::None));
        };
        let known = there.executables.get(name);
        let is_program = !matches!(program, Program::Missing | Program::Forbidden);
        let may_run = known.is_some_and(Executable::may_run);
        let may_be_over = known.is_none_or(Executable::may_be_over);
        let started = |pid| {
            let runs = known.map_or(0, |known| known.runs) + 1;
            let new = Executable {
                program,
                runs,
                pid,
                life: Life::Runs,
            };
            self.with(cell, name, new)
        };
        let refused = || match known {
            Some(known) => self.with(cell, name, known.over()),
            None => self.clone(),
        };
        match answer {
            Answer::Started { pid } if is_program && may_be_over => vec![started(Some(*pid))],
            Answer::Running if may_run => vec![self.clone()],
            Answer::NoProgram if program == Program::Missing && may_be_over => vec![refused()],
            Answer::Forbidden if program == Program::Forbidden && may_be_over => vec![refused()],
            Answer::None if is_program && may_be_over => vec![self.clone(), started(None)],
            Answer::None => vec![self.clone()],
            _ => Vec::new(),
        }
    }

    fn stop(&self, cell: &str, name: &str, answer: &Answer) -> Vec<Self> {
        let known = self.find(cell).map(|there| there.executables.get(name));
        match (answer, known) {
            (Answer::NoCell, None) | (Answer::NoExecutable, Some(None)) => vec![self.clone()],
            (Answer::Done, Some(Some(known))) => vec![self.with(cell, name, known.over())],
            (Answer::None, _) => self.stop_part(cell, name, answer),
            _ => Vec::new(),
        }
    }

    fn stop_part(&self, cell: &str, name: &str, answer: &Answer) -> Vec<Self> {
        let known = self
            .find(cell)
            .and_then(|there| there.executables.get(name));
        match (answer, known) {
            (Answer::Done, Some(known)) => vec![self.with(cell, name, known.over())],
            (Answer::None, Some(known)) => vec![self.with(cell, name, known.doomed(false))],
            _ => vec![self.clone()],
        }
    }

    fn free(&self, name: &str, answer: &Answer) -> Vec<Self> {
        let mut tree = self.clone();
        match (answer, self.has(name)) {
            (Answer::Done, true) => {
                tree.cells.retain(|other, _| !is_within(other, name));
                vec![tree]
            }
            (Answer::None, true) => {
                for (_, cell) in tree
                    .cells
                    .iter_mut()
                    .filter(|(other, _)| is_within(other, name))
                {
                    cell.standing = Standing::HalfFreed;
                }
                vec![self.clone(), tree]
            }
            (Answer::NoCell | Answer::None, false) => vec![tree],
            _ => Vec::new(),
        }
    }

    /// Adopts the listed state if the model allows it.
    fn list(&self, name: &str, answer: &Answer) -> Vec<Self> {
        let seen = match answer {
            Answer::Listed(seen) => seen.as_slice(),
            Answer::NoCell => &[],
            Answer::None => return vec![self.clone()],
            _ => return Vec::new(),
        };
        let mut tree = self.clone();
        let mut rest: BTreeMap<&str, &SeenCell> =
            seen.iter().map(|cell| (cell.name.as_str(), cell)).collect();
        for (other, cell) in self
            .cells
            .iter()
            .filter(|(other, _)| is_within(other, name))
        {
            let after = match (cell.standing, rest.remove(other.as_str())) {
                (Standing::There | Standing::Torn, Some(seen)) => cell.seen(seen).map(Some),
                (Standing::HalfFreed, None) => Some(Some(cell.clone())),
                (Standing::Torn, None) => Some(None),
                (Standing::There, None) | (Standing::HalfFreed, Some(_)) => None,
            };
            match after {
                Some(Some(cell)) => tree.cells.insert(other.clone(), cell),
                Some(None) => tree.cells.remove(other),
                None => return Vec::new(),
            };
        }
        if rest.is_empty() {
            vec![tree]
        } else {
            Vec::new()
        }
    }

    fn crash(&self) -> Self {
        let mut tree = self.clone();
        for cell in tree.cells.values_mut() {
            if cell.standing == Standing::HalfFreed {
                cell.standing = Standing::Torn;
            }
        }
        tree
    }

    fn find(&self, name: &str) -> Option<&Cell> {
        self.cells
            .get(name)
            .filter(|cell| cell.standing == Standing::There)
    }

    fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn with(&self, cell: &str, name: &str, executable: Executable) -> Self {
        let mut tree = self.clone();
        if let Some(cell) = tree.cells.get_mut(cell) {
            cell.executables.insert(name.to_owned(), executable);
        }
        tree
    }

    /// As it is, unless that cannot be.
    fn unless(&self, impossible: bool) -> Vec<Self> {
        if impossible {
            Vec::new()
        } else {
            vec![self.clone()]
        }
    }
}

impl Cell {
    fn seen(&self, seen: &SeenCell) -> Option<Self> {
        let torn = self.standing == Standing::Torn;
        let mut executables = BTreeMap::new();
        for (name, known) in &self.executables {
            match seen.executables.get(name) {
                Some(seen) if torn => {
                    executables.insert(name.clone(), known.doomed(true).seen(seen)?)
                }
                Some(seen) => executables.insert(name.clone(), known.seen(seen)?),
                None if torn => None,
                None => return None,
            };
        }
        let all_known = seen
            .executables
            .keys()
            .all(|name| executables.contains_key(name));
        all_known.then_some(Self {
            executables,
            standing: Standing::There,
        })
    }
}

impl Executable {
    fn may_run(&self) -> bool {
        matches!(self.life, Life::Runs | Life::Doomed { .. })
    }

    fn may_be_over(&self) -> bool {
        self.life != Life::Runs || self.program.own_end().is_some()
    }

    /// It has ended, by itself or because it was asked to.
    fn over(&self) -> Self {
        let life = match self.life {
            Life::Runs => Life::Over { lost: false },
            Life::Doomed { lost } => Life::Over { lost },
            life @ (Life::Over { .. } | Life::Ended(_)) => life,
        };
        Self {
            life,
            ..self.clone()
        }
    }

    fn doomed(&self, lost: bool) -> Self {
        let life = match self.life {
            Life::Runs => Life::Doomed { lost },
            Life::Doomed { lost: before } => Life::Doomed {
                lost: before || lost,
            },
            life @ (Life::Over { .. } | Life::Ended(_)) => life,
        };
        Self {
            life,
            ..self.clone()
        }
    }

    fn seen(&self, seen: &SeenExecutable) -> Option<Self> {
        let same = self.program == seen.program
            && self.runs == seen.runs
            && self.pid.is_none_or(|pid| pid == seen.pid);
        let life = match (self.life, seen.end) {
            (Life::Runs | Life::Doomed { .. }, None) => Some(self.life),
            (Life::Runs, Some(how)) => {
                (self.program.own_end() == Some(how)).then_some(Life::Ended(how))
            }
            (Life::Doomed { lost } | Life::Over { lost }, Some(how)) => {
                let possible = self.program.asked_end(how) || lost && how == How::Lost;
                possible.then_some(Life::Ended(how))
            }
            (Life::Ended(before), Some(how)) => (before == how).then_some(self.life),
            (Life::Over { .. } | Life::Ended(_), None) => None,
        };
        let life = life.filter(|_| same)?;
        Some(Self {
            pid: Some(seen.pid),
            life,
            ..self.clone()
        })
    }
}

/// Whether a cell is that one or nested in it.
fn is_within(cell: &str, outer: &str) -> bool {
    let rest = cell.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
