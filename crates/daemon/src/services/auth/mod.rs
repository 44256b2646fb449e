//! `services.auth.AuthService`: users, passwords and tokens.

use mainstay_api::services::auth::auth_service_server::AuthService;
use mainstay_api::services::auth::{
    CheckTokenRequest, CheckTokenResponse, LoginRequest, LoginResponse, LogoutRequest,
    LogoutResponse,
};
use tonic::{Request, Response, Status};

use crate::rpc::not_served;

#[derive(Debug)]
pub(super) struct Auth;

#[tonic::async_trait]
impl AuthService for Auth {
    async fn login(&self, _: Request<LoginRequest>) -> Result<Response<LoginResponse>, Status> {
        Err(not_served("services.auth.AuthService/Login"))
    }

    async fn logout(&self, _: Request<LogoutRequest>) -> Result<Response<LogoutResponse>, Status> {
        Err(not_served("services.auth.AuthService/Logout"))
    }

    async fn check_token(
        &self,
        _: Request<CheckTokenRequest>,
    ) -> Result<Response<CheckTokenResponse>, Status> {
        Err(not_served("services.auth.AuthService/CheckToken"))
    }
}
