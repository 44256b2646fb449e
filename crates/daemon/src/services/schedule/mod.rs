//! `schedule.ScheduleService`: executables that are kept running, and timers.

mod convert;

use std::sync::Arc;

use mainstay_api::envelope;
use mainstay_api::schedule::schedule_service_server::ScheduleService;
use mainstay_api::schedule::{
    Begun, DestroyRequest, DestroyResponse, Destroyed, DisableRequest, DisableResponse, Disabled,
    DisabledSchedules, EnableRequest, EnableResponse, Enabled, EnabledSchedules, RunRequest,
    RunResponse, ShowDisabledResponse, ShowEnabledResponse,
};
use mainstay_schedule::ScheduleError;
use tonic::{Request, Response, Status};

use crate::engines::schedule::{Schedule, Work};
use crate::node::Node;
use crate::rpc::fitting;
use crate::rpc::status::of_schedules;
use convert::{entry, status};

#[derive(Debug)]
pub(super) struct ScheduleCalls {
    node: Arc<Node>,
}

impl ScheduleCalls {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }

    fn schedules(&self) -> &Schedule {
        &self.node.engines.schedule
    }

    fn list(&self, enabled: bool) -> Vec<mainstay_api::schedule::ScheduleStatus> {
        let all = self.schedules().list();
        let wanted = all.iter().filter(|one| one.enabled == enabled);
        wanted.map(status).collect()
    }
}

fn shown(
    result: Result<mainstay_schedule::Status<Work>, ScheduleError>,
) -> Result<Option<mainstay_api::schedule::ScheduleStatus>, Status> {
    let seen = result.map_err(|error| of_schedules(&error))?;
    Ok(Some(status(&seen)))
}

#[tonic::async_trait]
impl ScheduleService for ScheduleCalls {
    async fn enable(
        &self,
        request: Request<EnableRequest>,
    ) -> Result<Response<EnableResponse>, Status> {
        let schedule = request.into_inner().schedule.unwrap_or_default();
        let name = schedule.name.clone();
        let result = match entry(schedule)? {
            Some(entry) => {
                if let Work::Service { name } = &entry.work
                    && self.node.engines.services.find(name).is_none()
                {
                    let message = format!("service {name:?} not defined");
                    return Err(Status::not_found(message));
                }
                self.schedules().enable(entry).await
            }
            None => self.schedules().resume(&name).await,
        };
        Ok(Response::new(envelope(Enabled {
            metadata: None,
            schedule: shown(result)?,
        })))
    }

    async fn disable(
        &self,
        request: Request<DisableRequest>,
    ) -> Result<Response<DisableResponse>, Status> {
        let result = self.schedules().disable(&request.get_ref().name).await;
        Ok(Response::new(envelope(Disabled {
            metadata: None,
            schedule: shown(result)?,
        })))
    }

    async fn destroy(
        &self,
        request: Request<DestroyRequest>,
    ) -> Result<Response<DestroyResponse>, Status> {
        let destroyed = self.schedules().destroy(&request.get_ref().name).await;
        destroyed.map_err(|error| of_schedules(&error))?;
        Ok(Response::new(envelope(Destroyed { metadata: None })))
    }

    async fn show_enabled(&self, _: Request<()>) -> Result<Response<ShowEnabledResponse>, Status> {
        let schedules = EnabledSchedules {
            metadata: None,
            schedules: self.list(true),
        };
        Ok(Response::new(envelope(fitting(schedules, "schedules")?)))
    }

    async fn show_disabled(
        &self,
        _: Request<()>,
    ) -> Result<Response<ShowDisabledResponse>, Status> {
        let schedules = DisabledSchedules {
            metadata: None,
            schedules: self.list(false),
        };
        Ok(Response::new(envelope(fitting(schedules, "schedules")?)))
    }

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let result = self.schedules().run(&request.get_ref().name).await;
        Ok(Response::new(envelope(Begun {
            metadata: None,
            schedule: shown(result)?,
        })))
    }
}
