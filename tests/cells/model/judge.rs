//! Whether many callers at once were answered as if their calls had come one after the other.
//!
//! Each call must seem to happen in one moment between its beginning and its answer. Nobody knows
//! in which; so every order that is possible so far is kept, and with every answer those go that
//! do not allow it. When none is left, something answered wrong.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::sync::Mutex;

use super::calls::{Answer, Call, SeenCell};
use super::tree::Tree;

/// The calls on one tree of cells and their answers, in the order of their start and end.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    calls: Vec<(Call, Answer)>,
    moments: Vec<Moment>,
}

#[derive(Debug, Clone, Copy)]
enum Moment {
    Begins(usize),
    Ends(usize),
}

/// A call that has begun.
#[derive(Debug)]
#[must_use]
pub(super) struct Begun(Vec<usize>);

/// One way in which it all may have happened so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Order {
    tree: Tree,
    /// Calls that have happened in it and are not answered yet.
    ahead: BTreeSet<usize>,
}

impl History {
    /// Must come before anything is sent.
    pub(super) fn begin(&self, call: &Call, executables: &[&'static str]) -> Begun {
        let mut recorded = self.0.lock().unwrap();
        let parts = match call {
            Call::StopAll { cell, .. } => {
                let part = |executable: &&'static str| Call::StopPart {
                    cell: cell.clone(),
                    executable,
                };
                let parts = executables.iter().map(part);
                [Call::Find { cell: cell.clone() }]
                    .into_iter()
                    .chain(parts)
                    .collect()
            }
            call => vec![call.clone()],
        };
        let begin = |part| {
            let number = recorded.calls.len();
            recorded.calls.push((part, Answer::None));
            recorded.moments.push(Moment::Begins(number));
            number
        };
        Begun(parts.into_iter().map(begin).collect())
    }

    /// Must come after the answer was received.
    pub(super) fn end(&self, begun: Begun, answer: &Answer) {
        let mut recorded = self.0.lock().unwrap();
        for number in begun.0 {
            recorded.calls[number].1 = answer.clone();
            recorded.moments.push(Moment::Ends(number));
        }
    }

    pub(super) fn crash(&self) {
        let crash = self.begin(&Call::Crash, &[]);
        self.end(crash, &Answer::Done);
    }

    /// The last calls and answers.
    pub(super) fn last(&self) -> String {
        let recorded = self.0.lock().unwrap();
        recorded.until(recorded.moments.len())
    }

    /// Or why there is no order in which it can have happened.
    pub(super) fn judge(&self) -> Result<(), String> {
        let recorded = self.0.lock().unwrap();
        let mut orders = HashSet::from([Order {
            tree: Tree::default(),
            ahead: BTreeSet::new(),
        }]);
        let mut open = BTreeSet::new();
        for (at, moment) in recorded.moments.iter().enumerate() {
            match moment {
                Moment::Begins(number) => {
                    open.insert(*number);
                }
                Moment::Ends(number) => {
                    let after = recorded.happened(&orders, *number, &open);
                    if after.is_empty() {
                        return Err(recorded.explain(at, &orders));
                    }
                    orders = after;
                    open.remove(number);
                }
            }
        }
        Ok(())
    }
}

impl Recorded {
    /// The orders in which a call has happened by now, others that are open before it if need be.
    fn happened(
        &self,
        orders: &HashSet<Order>,
        number: usize,
        open: &BTreeSet<usize>,
    ) -> HashSet<Order> {
        let mut after = HashSet::new();
        let mut known: HashSet<Order> = orders.clone();
        let mut left: Vec<Order> = orders.iter().cloned().collect();
        while let Some(mut order) = left.pop() {
            self.take_looks(&mut order, open);
            if order.ahead.remove(&number) {
                after.insert(order);
                continue;
            }
            for next in open.difference(&order.ahead) {
                let (call, answer) = &self.calls[*next];
                for tree in order.tree.after(call, answer) {
                    let mut ahead = order.ahead.clone();
                    ahead.insert(*next);
                    let order = Order { tree, ahead };
                    if known.insert(order.clone()) {
                        left.push(order);
                    }
                }
            }
        }
        after
    }

    /// A call that changed nothing, and can happen now, need not be tried later: what follows is
    /// the same. Without this there would be too many orders to look at.
    fn take_looks(&self, order: &mut Order, open: &BTreeSet<usize>) {
        for number in open {
            let (call, answer) = &self.calls[*number];
            if matches!(answer, Answer::Done | Answer::Started { .. } | Answer::None)
                && !matches!(call, Call::Find { .. })
                || order.ahead.contains(number)
            {
                continue;
            }
            if order.tree.after(call, answer) == [order.tree.clone()] {
                order.ahead.insert(*number);
            }
        }
    }

    fn explain(&self, at: usize, orders: &HashSet<Order>) -> String {
        let mut text = self.until(at + 1);
        let count = orders.len();
        let _ = writeln!(text, "the last answer fits none of {count} states:");
        for order in orders.iter().take(4) {
            let _ = writeln!(text, "{order:?}");
        }
        text
    }

    /// The moments before that one.
    fn until(&self, end: usize) -> String {
        const MAX_SHOWN: usize = 60;
        let mut text = String::new();
        for moment in &self.moments[end.saturating_sub(MAX_SHOWN)..end] {
            let _ = match moment {
                Moment::Begins(at) => writeln!(text, "{at:5} {:?}", self.calls[*at].0),
                Moment::Ends(at) => writeln!(text, "{at:5}   → {:?}", self.calls[*at].1),
            };
        }
        text
    }
}

#[test]
fn a_history_without_linearization_is_rejected() {
    let cell = || "a".to_owned();
    let allocate = Call::Allocate { cell: cell() };
    let free = Call::Free { cell: cell() };
    let history = History::default();
    let first = history.begin(&allocate, &[]);
    let second = history.begin(&allocate, &[]);
    let third = history.begin(&free, &[]);
    // Only if it was freed in between.
    history.end(second, &Answer::Done);
    history.end(first, &Answer::Done);
    history.end(third, &Answer::Done);
    history.judge().unwrap();
    let fourth = history.begin(&Call::List { cell: cell() }, &[]);
    history.end(fourth, &Answer::NoCell);
    let why = history.judge().unwrap_err();
    assert!(why.contains("List"), "{why}");
}

#[test]
fn an_interrupted_call_happened_or_not_but_not_both() {
    let cell = || "a".to_owned();
    let history = History::default();
    let broken = history.begin(&Call::Allocate { cell: cell() }, &[]);
    history.end(broken, &Answer::None);
    history.crash();
    let list = || Call::List { cell: cell() };
    let first = history.begin(&list(), &[]);
    history.end(first, &Answer::NoCell);
    history.judge().unwrap();
    let there = Answer::Listed(vec![SeenCell {
        name: cell(),
        executables: BTreeMap::new(),
    }]);
    let second = history.begin(&list(), &[]);
    history.end(second, &there);
    history.judge().unwrap_err();
}
