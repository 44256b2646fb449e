//! The services of this node, for calls that its own fan-out makes to it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use mainstay_fanout::Local;
use tonic::Status;
use tonic::service::Routes;

use super::answer;

/// The routes of this node, which are made after the fan-out. Clones share them.
#[derive(Clone, Default)]
pub struct LocalRoutes(Arc<ArcSwapOption<Routes>>);

impl LocalRoutes {
    pub fn set(&self, routes: Routes) {
        self.0.store(Some(Arc::new(routes)));
    }

    /// Drops the routes: services hold the engines, and the fan-out is one of them.
    pub fn clear(&self) {
        self.0.store(None);
    }

    pub fn answerer(&self) -> Local {
        let routes = self.clone();
        Arc::new(move |request| match &*routes.0.load() {
            Some(routes) => answer(Routes::clone(routes), request).boxed(),
            None => {
                let status = Status::unavailable("the node is starting or stopping; retry");
                std::future::ready(status.into_http()).boxed()
            }
        })
    }
}

impl std::fmt::Debug for LocalRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalRoutes").finish_non_exhaustive()
    }
}
