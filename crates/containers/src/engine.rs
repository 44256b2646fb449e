//! The engine: selects driver and socket for a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tracing::info;

use crate::choice::{before, choose};
use crate::connection::Connection;
use crate::container::{Container, Kind, Usage};
use crate::containerd::Containerd;
use crate::cri::{Cri, KUBERNETES};
use crate::error::{ContainerError, NoLog};
use crate::input::{check_id, check_namespace};
use crate::log::{Instance, LogFile};
use crate::restarts::Restarts;

/// The namespace of the node's own workloads, which no other runtime serves.
const OWN: &str = "mainstay";

/// The driver that lists and restarts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Containerd,
    Cri,
}

/// The sockets of the runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    pub containerd: PathBuf,
    pub cri: PathBuf,
    /// Sockets of namespaces that another containerd serves.
    pub namespaces: BTreeMap<String, PathBuf>,
    /// The time a runtime has to answer a call.
    pub timeout: Duration,
}

/// All containers of other runtimes on this machine. Cheap to clone; connects on first use.
#[derive(Clone, Debug)]
pub struct Containers(Arc<Runtimes>);

#[derive(Debug)]
struct Runtimes {
    containerd: Containerd,
    namespaces: BTreeMap<String, Containerd>,
    cri: Cri,
    restarts: Restarts,
}

impl Containers {
    pub fn new(sockets: &Sockets) -> Self {
        let connection = |runtime, socket, option: &str| {
            Connection::new(runtime, socket, option, sockets.timeout)
        };
        let containerd =
            |socket, option: &str| Containerd::new(connection("containerd", socket, option));
        let namespaces = sockets.namespaces.iter().map(|(namespace, socket)| {
            let option = format!("containers.namespaces.{namespace}");
            (namespace.clone(), containerd(socket, &option))
        });
        Self(Arc::new(Runtimes {
            namespaces: namespaces.collect(),
            containerd: containerd(&sockets.containerd, "containers.containerd"),
            cri: Cri::new(connection("CRI", &sockets.cri, "containers.cri")),
            restarts: Restarts::default(),
        }))
    }

    /// Lists the containers of a namespace, exited ones included; of all namespaces if `namespace`
    /// is empty.
    pub async fn list(
        &self,
        namespace: &str,
        driver: Driver,
    ) -> Result<Vec<Container>, ContainerError> {
        self.0.list(namespace, driver).await
    }

    /// Lists the containers of a namespace with their usage.
    pub async fn usage(
        &self,
        namespace: &str,
        driver: Driver,
    ) -> Result<Vec<(Container, Usage)>, ContainerError> {
        let runtimes = &self.0;
        check(namespace, driver)?;
        match (driver, namespace) {
            (Driver::Cri, _) => runtimes.cri.usage().await,
            (_, OWN) => Ok(Vec::new()),
            (_, "") => {
                let all = runtimes.everywhere().await?;
                let mut answers = Vec::new();
                for (name, runtime) in &all {
                    answers.push(runtime.usage(name));
                }
                joined(join_all(answers).await)
            }
            (_, name) => runtimes.of(name).usage(name).await,
        }
    }

    /// Stops a container and starts it again. A container of Kubernetes is only stopped, within
    /// its grace period: its kubelet starts the next one.
    pub async fn restart(
        &self,
        namespace: &str,
        id: &str,
        driver: Driver,
    ) -> Result<(), ContainerError> {
        check_id(id)?;
        let all = self.0.choices(namespace, driver).await?;
        let container = in_one_namespace(&all, id)?.clone();
        let guard = self.0.restarts.begin(&container)?;
        let runtimes = Arc::clone(&self.0);
        // In a task of its own: a caller that cancels must not leave the container stopped.
        let id = container.id.clone();
        let work = tokio::spawn(async move {
            let done = runtimes.restart(&container, driver).await;
            if done.is_ok() {
                info!(
                    namespace = container.namespace,
                    id = container.id,
                    "container restarted"
                );
            }
            drop(guard);
            done
        });
        work.await.map_err(|_| ContainerError::Interrupted { id })?
    }

    /// Returns the log file of a container.
    pub async fn log(
        &self,
        namespace: &str,
        id: &str,
        driver: Driver,
        instance: Instance,
    ) -> Result<LogFile, ContainerError> {
        check_id(id)?;
        let all = self.0.choices(namespace, driver).await?;
        let mut container = in_one_namespace(&all, id)?;
        if instance == Instance::Previous {
            container = before(&all, container)?;
        }
        match (driver, container.kind) {
            (_, Kind::Sandbox) => Err(ContainerError::NoLog {
                id: container.id.clone(),
                why: NoLog::Sandbox,
            }),
            (Driver::Cri, _) | (_, Kind::InPod) => self.0.cri.log(container).await,
            (_, Kind::Plain) => self.0.of(&container.namespace).log(container).await,
        }
    }
}

impl Runtimes {
    async fn list(
        &self,
        namespace: &str,
        driver: Driver,
    ) -> Result<Vec<Container>, ContainerError> {
        check(namespace, driver)?;
        match (driver, namespace) {
            (Driver::Cri, _) => self.cri.list().await,
            (_, OWN) => Ok(Vec::new()),
            (_, "") => {
                let all = self.everywhere().await?;
                let mut answers = Vec::new();
                for (name, runtime) in &all {
                    answers.push(runtime.list(name));
                }
                joined(join_all(answers).await)
            }
            (_, name) => self.of(name).list(name).await,
        }
    }

    /// Lists the containers an id may refer to.
    async fn choices(
        &self,
        namespace: &str,
        driver: Driver,
    ) -> Result<Vec<Container>, ContainerError> {
        check(namespace, driver)?;
        match driver {
            Driver::Cri => self.cri.brief_list().await,
            Driver::Containerd => self.list(namespace, driver).await,
        }
    }

    async fn restart(&self, container: &Container, driver: Driver) -> Result<(), ContainerError> {
        match (driver, container.kind) {
            (Driver::Containerd, Kind::Plain) => {
                self.of(&container.namespace).restart(container).await
            }
            // Through CRI, so that the kubelet learns that it stopped.
            _ => self.cri.stop(container).await,
        }
    }

    fn of(&self, namespace: &str) -> &Containerd {
        self.namespaces.get(namespace).unwrap_or(&self.containerd)
    }

    /// Returns all namespaces with the containerd that serves them. A socket that does not exist
    /// is skipped if there is another.
    async fn everywhere(&self) -> Result<Vec<(String, &Containerd)>, ContainerError> {
        let mut names: BTreeSet<String> = self.namespaces.keys().cloned().collect();
        match self.containerd.namespaces().await {
            Ok(more) => names.extend(more),
            Err(ContainerError::Unreachable { absent: true, .. }) if !names.is_empty() => {}
            Err(error) => return Err(error),
        }
        let with_runtime = |name: String| {
            let runtime = self.of(&name);
            (name, runtime)
        };
        Ok(names
            .into_iter()
            .filter(|name| name != OWN)
            .map(with_runtime)
            .collect())
    }
}

fn check(namespace: &str, driver: Driver) -> Result<(), ContainerError> {
    if driver == Driver::Cri && namespace != KUBERNETES {
        check_namespace_or_none(namespace)?;
        return Err(ContainerError::NotKubernetes {
            namespace: namespace.to_owned(),
        });
    }
    check_namespace_or_none(namespace)
}

fn check_namespace_or_none(namespace: &str) -> Result<(), ContainerError> {
    if namespace.is_empty() {
        Ok(())
    } else {
        check_namespace(namespace)
    }
}

/// Joins the answers of all namespaces. A socket that does not exist is skipped unless no other
/// answered.
fn joined<T>(answers: Vec<Result<Vec<T>, ContainerError>>) -> Result<Vec<T>, ContainerError> {
    let mut all = Vec::new();
    let mut absent = None;
    let mut answered = answers.is_empty();
    for answer in answers {
        match answer {
            Ok(some) => {
                answered = true;
                all.extend(some);
            }
            Err(error @ ContainerError::Unreachable { absent: true, .. }) => absent = Some(error),
            Err(error) => return Err(error),
        }
    }
    match absent {
        Some(error) if !answered => Err(error),
        _ => Ok(all),
    }
}

/// Returns the container `id` refers to, if it is in one namespace only.
fn in_one_namespace<'a>(all: &'a [Container], id: &str) -> Result<&'a Container, ContainerError> {
    let namespaces: BTreeSet<&str> = all
        .iter()
        .filter(|container| container.id == id || container.internal_id == id)
        .map(|container| container.namespace.as_str())
        .collect();
    if namespaces.len() > 1 {
        return Err(ContainerError::Ambiguous {
            id: id.to_owned(),
            namespaces: namespaces.into_iter().map(str::to_owned).collect(),
        });
    }
    choose(all, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::sample;

    #[test]
    fn an_id_in_several_namespaces_is_ambiguous() {
        let all = [sample("a", "web"), sample("b", "web"), sample("b", "db")];
        let error = in_one_namespace(&all, "web").unwrap_err().to_string();
        assert!(error.contains("(a, b); name one of them"), "{error}");
        assert_eq!(in_one_namespace(&all, "db").unwrap().namespace, "b");
        assert!(in_one_namespace(&all, "x").is_err());
    }

    #[test]
    fn an_absent_socket_is_skipped_only_if_another_answers() {
        let unreachable = |absent| {
            Err(ContainerError::Unreachable {
                runtime: "containerd",
                socket: PathBuf::new(),
                option: String::new(),
                reason: String::new(),
                absent,
            })
        };
        assert_eq!(
            joined(vec![unreachable(true), Ok(vec![1, 2])]).unwrap(),
            [1, 2]
        );
        assert!(joined(vec![unreachable(false), Ok(vec![1])]).is_err());
        assert!(joined::<u8>(vec![unreachable(true)]).is_err());
        assert!(joined::<u8>(Vec::new()).unwrap().is_empty());
    }
}
