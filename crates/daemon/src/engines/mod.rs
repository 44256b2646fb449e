//! The engines of the node: one module each, with its sections of the configuration file, its
//! start, its reload and its stop.
//!
//! [`for_each_engine`] is the only list of them. An engine's module exports
//! - its sections of the configuration file, as serde types with defaults;
//! - `RESTART_KEYS`, the keys among them that a reload cannot apply;
//! - `build(&Startup, …) -> Result<Engine, BuildError>`, given the engines it needs;
//! - `reload(&Engine, old, new)`, which applies values that are already valid and cannot fail;
//! - `stop(&Engine)`.

pub mod cells;
pub mod containers;
pub mod fanout;
pub mod identity;
pub mod journal;
pub mod lifecycle;
pub mod listeners;
pub mod schedule;
pub mod services;
pub mod signals;
pub mod time;
pub mod upgrade;

use crate::config::Config;
use crate::handover::Process;
use crate::node::Build;
use crate::state::StateDir;

/// Calls `$generate!` with every engine in build order:
/// `module(modules it needs): Type [section of the configuration file: Type, …];`
macro_rules! for_each_engine {
    ($generate:ident) => {
        $generate! {
            journal(): Journal [log: LogSection, audit: AuditSection, events: EventsSection];
            identity(): Identity [identity: IdentitySection, compatibility: CompatibilitySection];
            listeners(): Listeners [limits: LimitsSection];
            cells(journal): Cells [cells: CellsSection];
            services(journal): Services [services: ServicesSection];
            schedule(journal, cells, services): Schedule [];
            signals(): Signals [];
            upgrade(): Upgrade [upgrade: UpgradeSection];
            lifecycle(journal, cells, services, schedule, upgrade): Lifecycle [lifecycle: LifecycleSection];
            containers(): Containers [containers: ContainersSection];
            time(): Time [time: TimeSection];
            fanout(identity, listeners): Forwarding [
                fleet: FleetSection,
                forwarding: ForwardingSection,
                peers: PeersSection
            ];
        }
    };
}
pub(crate) use for_each_engine;

/// An engine's reason not to start.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// The inputs every engine is built from.
#[derive(Debug, Clone, Copy)]
pub struct Startup<'a> {
    pub config: &'a Config,
    pub state: &'a StateDir,
    pub build: &'a Build,
    /// Ends or replaces the daemon.
    pub process: &'a Process,
}

macro_rules! engines {
    ($($engine:ident ($($need:ident),*): $type:ident [$($section:ident: $section_type:ident),*];)+) => {
        /// All engines of the node.
        #[derive(Debug)]
        pub struct Engines {
            $(pub $engine: $engine::$type,)+
        }

        impl Engines {
            /// Builds them in the order of the list; the first that fails ends the start.
            pub async fn build(startup: Startup<'_>) -> Result<Self, BuildError> {
                $(let $engine = $engine::build(startup, $(&$need),*).await?;)+
                Ok(Self { $($engine),+ })
            }

            /// Applies a changed configuration to each of them.
            pub fn reload(&self, old: &Config, new: &Config) {
                $($engine::reload(&self.$engine, old, new);)+
            }

            /// Stops them in reverse order, after the last call has ended.
            pub async fn stop(&self) {
                engines!(@stop self [] $($engine)+);
            }
        }

        /// The keys that take effect on restart only.
        pub fn restart_keys() -> impl Iterator<Item = &'static str> {
            [$($engine::RESTART_KEYS),+].into_iter().flatten().copied()
        }
    };
    (@stop $self:ident [$($reversed:ident)*]) => {
        $($reversed::stop(&$self.$reversed).await;)*
    };
    (@stop $self:ident [$($reversed:ident)*] $first:ident $($rest:ident)*) => {
        engines!(@stop $self [$first $($reversed)*] $($rest)*)
    };
}
for_each_engine!(engines);
