//! The services engine: programs that the node keeps running.

mod events;
mod section;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_cells::zygote::ZygoteCommand;
pub use mainstay_supervisor::Supervisor as Services;
use mainstay_supervisor::{Definition, OpenError, ServiceName};
use tracing::error;

use super::cells::CellsSection;
use super::journal::Journal;
use super::{BuildError, Startup};
use crate::config::Config;
use events::ServicesToEvents;
pub use section::{BadService, ServicesSection};

pub const RESTART_KEYS: &[&str] = &[];

/// The directory of services in the state directory.
const DIRECTORY: &str = "services";

#[derive(Debug, thiserror::Error)]
#[error("cannot adopt the services of this node")]
struct ServicesError(#[from] OpenError);

pub async fn build(startup: Startup<'_>, journal: &Journal) -> Result<Services, BuildError> {
    let section = &startup.config.settings.cells;
    let settings = mainstay_supervisor::Settings {
        cells: mainstay_cells::Settings {
            state: startup.state.path().join(DIRECTORY),
            hidden: Vec::new(),
            cgroup: format!("{}-services", section.cgroup(&startup.config.state)),
            layout: None,
            zygote: ZygoteCommand::default(),
            logs: section.log_limits(),
            logs_keep_free: section.log_keep_free.0,
            grace: section.stop_grace.0,
            uid_range: (section.first_user, section.users.get()),
            user_namespace: false,
            default_pids: None,
            unconfined: true,
        },
    };
    let definitions = definitions(&startup.config.settings.services)?;
    let events = ServicesToEvents::new(journal.service_events.clone());
    let opened = tokio::task::spawn_blocking(move || Services::open(settings, definitions, events));
    Ok(opened.await?.map_err(ServicesError)?)
}

pub fn reload(services: &Services, old: &Config, new: &Config) {
    let cells: &CellsSection = &new.settings.cells;
    services.cells().set_grace(cells.stop_grace.0);
    services
        .cells()
        .set_log_limits(cells.log_limits(), cells.log_keep_free.0);
    if new.settings.services == old.settings.services {
        return;
    }
    match definitions(&new.settings.services) {
        Ok(definitions) => services.define(definitions),
        // Checked when the configuration was read; a device may have gone since.
        Err(error) => error!(%error, "cannot change the services; the previous ones stay"),
    }
}

/// Services run on without the daemon; the next one adopts them.
pub async fn stop(services: &Services) {
    const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
    let services = services.clone();
    let flushed = tokio::task::spawn_blocking(move || {
        services.flush();
        // A daemon that is executed in place of this one does not know it as its child.
        services.cells().hand_over();
    });
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
}

/// The definitions of a configuration whose references have been checked.
pub fn definitions(
    services: &ServicesSection,
) -> Result<BTreeMap<ServiceName, Arc<Definition>>, BadService> {
    let defined = services.iter().map(|(name, section)| {
        let definition = section.definition(name)?;
        Ok((name.clone(), Arc::new(definition)))
    });
    defined.collect()
}
