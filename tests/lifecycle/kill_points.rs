//! The daemon is killed after each event of a reboot, a shutdown and a reset: the next daemon ends
//! the sequence where it should end.

use mainstay_api::machine::{
    EventsRequest, RebootRequest, ResetPartitionSpec, ResetRequest, ShutdownRequest,
};
use mainstay_testkit::{require, soon};

use super::{Subject, count, phases, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reboot,
    Shutdown,
    Reset,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Shutdown => "shutdown",
            Self::Reset => "reset",
        }
    }

    fn phases(self) -> &'static [&'static str] {
        match self {
            Self::Reboot => &[
                "stopEverything",
                "umount",
                "unmountSystem",
                "unmountBind",
                "reboot",
            ],
            Self::Shutdown => &[
                "stopEverything",
                "umount",
                "unmountSystem",
                "unmountBind",
                "shutdown",
            ],
            Self::Reset => &[
                "drain",
                "leave",
                "cleanup",
                "stopEverything",
                "umount",
                "unmountSystem",
                "unmountBind",
                "reset",
                "reboot",
            ],
        }
    }

    async fn start(self, subject: &Subject) -> String {
        let mut machine = subject.machine().await;
        match self {
            Self::Reboot => {
                let answer = machine.reboot(RebootRequest::default()).await.unwrap();
                answer.into_inner().messages.remove(0).actor_id
            }
            Self::Shutdown => {
                let answer = machine.shutdown(ShutdownRequest::default()).await.unwrap();
                answer.into_inner().messages.remove(0).actor_id
            }
            Self::Reset => {
                let request = ResetRequest {
                    graceful: true,
                    reboot: true,
                    system_partitions_to_wipe: vec![ResetPartitionSpec {
                        label: "EPHEMERAL".to_owned(),
                        wipe: true,
                    }],
                    ..ResetRequest::default()
                };
                let answer = machine.reset(request).await.unwrap();
                answer.into_inner().messages.remove(0).actor_id
            }
        }
    }
}

/// Runs the sequence, kills the daemon after its event of this number, and starts it again until
/// the sequence has ended. Returns whether there was such an event before the end.
async fn kill_after(kind: Kind, number: usize) -> bool {
    let name = format!("kill-{}-{number}", kind.name());
    let mut subject = Subject::start(&name);
    subject.run("web", "sleep 1000").await;
    let mut watcher = subject.machine().await;
    let mut events = (watcher.events(EventsRequest::default()).await.unwrap()).into_inner();
    // The first event confirms the subscription.
    events.message().await.unwrap();
    let actor = kind.start(&subject).await;
    let reached = soon("the event to kill after", async {
        let mut seen = 0;
        loop {
            // The end of the stream is the end of the daemon, which a reboot brings about.
            let Ok(Some(event)) = events.message().await else {
                return false;
            };
            if event.actor_id != actor {
                continue;
            }
            if seen == number {
                return true;
            }
            seen += 1;
        }
    })
    .await;
    if !reached {
        return false;
    }
    subject.node.kill();
    subject.node = subject.node.restart();
    // A shutdown that was resumed has ended this daemon too, so it is started until it stays.
    let stop = format!("sequence {} STOP", kind.name());
    let events = soon("the end of the sequence", async {
        loop {
            match subject.try_events(&actor).await {
                Ok(events) if events.contains(&stop) => return events,
                Err(_) if kind == Kind::Shutdown => subject.node = subject.node.restart(),
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(
        !events.iter().any(|event| event.contains("NOOP")),
        "{kind:?} killed after event {number}: {events:#?}"
    );
    // After a reset the journal begins with the last phases; every other one is whole.
    let wanted = kind.phases();
    let found = phases(&events);
    assert!(wanted.ends_with(&found), "{number}: {found:?}");
    assert!(
        kind == Kind::Reset || found == wanted,
        "{number}: {found:?}"
    );
    assert!(count(&events, &stop) <= 2, "{events:#?}");
    true
}

async fn enumerate(kind: Kind) {
    require!(Root);
    let mut number = 0;
    while kill_after(kind, number).await {
        number += 1;
    }
    // Every phase starts and stops, and so does the sequence.
    let least = 2 * kind.phases().len();
    assert!(number >= least, "only {number} kill points");
}

#[tokio::test]
async fn a_reboot_ends_wherever_the_daemon_is_killed() {
    enumerate(Kind::Reboot).await;
}

#[tokio::test]
async fn a_shutdown_ends_wherever_the_daemon_is_killed() {
    enumerate(Kind::Shutdown).await;
}

#[tokio::test]
async fn a_reset_ends_wherever_the_daemon_is_killed() {
    enumerate(Kind::Reset).await;
}

/// The task that stops everything is under way: it runs again.
#[tokio::test]
async fn a_daemon_killed_while_it_stops_everything_resumes() {
    require!(Root);
    let mut subject = Subject::start_stubborn("mid-stop").await;
    let actor = subject.reboot().await;
    subject.wait_for(&actor, "task stopAllCells START").await;
    subject.node.kill();
    subject.node = subject.node.restart();
    let mut machine = subject.machine().await;
    let request = EventsRequest {
        tail_events: -1,
        with_actor_id: actor.clone(),
        ..EventsRequest::default()
    };
    let mut events = machine.events(request).await.unwrap().into_inner();
    let mut starts = 0;
    soon("the task to run again", async {
        while starts < 2 {
            let event = events.message().await.unwrap().unwrap();
            let is_start = words(&event).is_some_and(|it| it == "task stopAllCells START");
            starts += usize::from(is_start);
        }
    })
    .await;
    let busy = machine.reboot(RebootRequest::default()).await.unwrap_err();
    assert!(busy.message().contains(&actor), "{busy}");
}
