//! The phases and tasks of reboot, shutdown and reset, by the names that clients know.

use std::sync::Arc;
use std::time::Duration;

use mainstay_lifecycle::platform::BootId;
use mainstay_lifecycle::{ActorId, AfterCrash, Finding, Phase, Plan, Task};

use super::reset::{Label, WipeOrder};
use super::switch;
use super::{Arguments, Lifecycle};

pub const REBOOT: &str = "reboot";
pub const SHUTDOWN: &str = "shutdown";
pub const RESET: &str = "reset";

/// Bounds a task that only writes or removes small files.
const FILES_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a forced sequence, the bound on the stop of everything.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_secs(15);

impl Lifecycle {
    /// Returns the plan of a sequence; `None` if this build does not know it.
    pub(super) fn plan(
        &self,
        sequence: &str,
        forced: bool,
        arguments: &Arguments,
        actor: &ActorId,
    ) -> Option<Plan> {
        let boot = &arguments.boot;
        let plan = match (sequence, &arguments.reset) {
            (REBOOT, _) => {
                let plan = Plan::new().phase(self.stop_everything(forced, true));
                unmount(plan).phase(self.reboot_phase(forced, boot))
            }
            (SHUTDOWN, _) => {
                let plan = Plan::new().phase(self.stop_everything(forced, true));
                unmount(plan).phase(self.shutdown_phase(forced, boot))
            }
            (RESET, Some(options)) => {
                // There is no cluster to leave yet; clients know the phases all the same.
                let mut plan = Plan::new();
                for phase in ["drain", "leave", "cleanup"] {
                    plan = plan.phase(Phase::new(phase));
                }
                let plan = plan.phase(self.stop_everything(false, options.graceful));
                let order = WipeOrder::new(options, actor);
                let plan = unmount(plan).phase(self.reset_phase(order));
                // The last phase has this name for clients, also where it turns the node off.
                plan.phase(match options.reboot {
                    true => self.reboot_phase(false, boot),
                    false => self.end_phase(REBOOT, SHUTDOWN, false, boot),
                })
            }
            // What was received went with the last daemon.
            (switch::UPGRADE, _) => self.upgrade_plan(actor, arguments.staged, None),
            (switch::ROLLBACK, _) => self.rollback_plan(actor),
            _ => return None,
        };
        Some(plan)
    }

    /// Stops everything that runs on the node, side by side.
    pub fn stop_everything(&self, forced: bool, graceful: bool) -> Phase {
        let mut phase = Phase::new("stopEverything");
        let deadline = match forced {
            true => FORCED_STOP_TIMEOUT,
            false => *self.stop_timeout(),
        };
        for stoppable in &self.stoppables {
            let stoppable = Arc::clone(stoppable);
            let name = stoppable.task();
            let work =
                move || async move { stoppable.stop_all(graceful && !forced, deadline).await };
            phase = phase.task(Task::new(name, deadline, work).tolerated_if(forced));
        }
        phase
    }

    /// Starts the node again. The last task of a sequence: the next daemon reports its end.
    pub fn reboot_phase(&self, forced: bool, boot: &BootId) -> Phase {
        let (platform, asked) = (Arc::clone(&self.platform), boot.clone());
        let check = move || platform.is_rebooted(&asked);
        let platform = Arc::clone(&self.platform);
        let deadline = platform.end_timeout();
        let work = move || async move { platform.reboot(forced).await };
        let task =
            Task::new(REBOOT, deadline, work).after_crash(AfterCrash::Check(Box::new(check)));
        Phase::new(REBOOT).task(task)
    }

    fn shutdown_phase(&self, forced: bool, boot: &BootId) -> Phase {
        self.end_phase(SHUTDOWN, SHUTDOWN, forced, boot)
    }

    fn end_phase(&self, phase: &str, task: &str, forced: bool, _: &BootId) -> Phase {
        let platform = Arc::clone(&self.platform);
        let deadline = platform.end_timeout();
        let work = move || async move { platform.shut_down(forced).await };
        // A node that is started after its shutdown is wanted again.
        let check = || Finding::Done;
        let task = Task::new(task, deadline, work).after_crash(AfterCrash::Check(Box::new(check)));
        Phase::new(phase).task(task)
    }

    fn reset_phase(&self, order: WipeOrder) -> Phase {
        let mut phase = Phase::new(RESET);
        let wiped = [
            (Label::Ephemeral, "freeAllCells", &self.cells),
            (Label::State, "freeAllServices", self.services.cells()),
        ];
        for (label, task, cells) in wiped {
            if order.wipes(label) {
                let cells = cells.clone();
                let work = move || async move { super::stop::free_all(cells).await };
                phase = phase.task(Task::new(task, *self.stop_timeout(), work));
            }
        }
        let state = self.state.clone();
        // The next daemon wipes before it opens anything: this one has the files open.
        let work = move || async move { order.write(&state).await };
        phase.task(Task::new("orderWipe", FILES_TIMEOUT, work))
    }
}

/// Adds the phases that unmount what a platform has mounted: nothing, on those implemented.
fn unmount(mut plan: Plan) -> Plan {
    for phase in ["umount", "unmountSystem", "unmountBind"] {
        plan = plan.phase(Phase::new(phase));
    }
    plan
}
