//! Sockets: accepting connections, and shutting down.

use super::app::Host;
use super::client::Address;
use super::connections::{Connection, Connections, Sending};
use super::error::{ApiError, ErrorKind};
use super::guard::guard;
use super::socket::Socket;
use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The time between looks at whether the model is idle.
const IDLE_CHECK: Duration = Duration::from_millis(250);
/// The pause after a connection could not be accepted, because the process has too many files open
/// for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Return a router with all interfaces, for programs that have sockets of their own. Limits of
/// connections and their times are those of [`Server`], which the router knows nothing of.
pub fn router(host: &Arc<Host>) -> Router {
    let routes = crate::native::routes().merge(crate::openai::routes()).merge(crate::anthropic::routes());
    let page = if host.params().ui { crate::page::routes() } else { Router::new() };
    routes
        .merge(page)
        .fallback(|| async { ApiError::new(ErrorKind::NotFound, "File Not Found") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(ErrorKind::Method, "this path does not answer to this method")
        })
        .layer(from_fn_with_state(host.clone(), guard))
        .with_state(host.clone())
}

/// A handle that ends a running server.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Accept no further connections, let requests under way finish for a moment, keep the state,
    /// and end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    host: Arc<Host>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listen on the addresses of the host's settings, all with one port: if that is 0, with the
    /// one that the system gives to the first.
    ///
    /// # Errors
    /// Those of the system, if an address does not exist or the port is taken.
    pub fn bind(host: Host) -> io::Result<Self> {
        let listeners = bind(&host.params().hosts, host.params().port)?;
        Ok(Server { listeners, host: Arc::new(host), stop: watch::channel(false).0 })
    }

    /// Return the addresses with their ports.
    ///
    /// # Errors
    /// Those of the system.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Return the first address and its port.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.addresses()?.first().copied().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Return a handle that ends the server.
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serve until [`Stop::stop`], on this thread.
    ///
    /// # Errors
    /// Those of the system, if no runtime can be made.
    pub fn run(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(self.serve());
        // A load of the model may still be under way.
        runtime.shutdown_timeout(Duration::from_secs(1));
        result
    }

    async fn serve(self) -> io::Result<()> {
        let Server { listeners, host, stop } = self;
        let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std);
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        let mut stopped = stop.subscribe();
        let service = TowerToHyperService::new(router(&host));
        let connections = GracefulShutdown::new();
        let open = Connections::new(host.params().max_connections);
        let protocol = protocol(host.params().header_timeout);
        // Connections do not put the next look off.
        let mut idle = tokio::time::interval(IDLE_CHECK);
        loop {
            let accepted = tokio::select! {
                _ = stopped.wait_for(|&stopped| stopped) => break,
                _ = idle.tick() => {
                    host.sleep_if_idle();
                    continue;
                }
                accepted = accept(&listeners, &open) => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(own) = open.add(address) else {
                tracing::debug!("an address has its share of connections");
                continue;
            };
            let close = own.close();
            let service = answering(service.clone(), own, address);
            let socket = TokioIo::new(Socket::new(stream, host.params().write_timeout));
            let connection = connections.watch(protocol.serve_connection(socket, service));
            tokio::spawn(until(connection, close));
        }
        tracing::info!("stopping");
        drop(listeners);
        let grace = host.params().grace;
        if tokio::time::timeout(grace, connections.shutdown()).await.is_err() {
            tracing::warn!("requests that did not end within {} s are cut off", grace.as_secs());
        }
        host.close().await;
        Ok(())
    }
}

/// Return HTTP/1.1 with a time limit for headers.
fn protocol(header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(header_timeout);
    // Some clients compare names of headers letter by letter.
    builder.title_case_headers(true);
    builder
}

/// Serve a connection until it ends or has to give way.
async fn until(connection: impl Future<Output = hyper::Result<()>>, close: Arc<Notify>) {
    let ended = tokio::select! {
        ended = connection => ended,
        () = close.notified() => return,
    };
    // Clients that go away in the middle are no error of ours.
    if let Err(error) = ended {
        tracing::debug!(%error, "connection");
    }
}

/// Return true if a listener at `::` is at this address of this machine too.
fn is_within(all: &TcpListener, address: IpAddr) -> bool {
    let has_ipv4 = || SockRef::from(all).only_v6().is_ok_and(|only_v6| !only_v6);
    address.is_ipv6() || (address.is_unspecified() || address.is_loopback()) && has_ipv4()
}

/// Listen on addresses with one port.
fn bind(hosts: &[String], mut port: u16) -> io::Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    // All of IPv6 first: where that has IPv4's addresses too, it has 0.0.0.0.
    let (all, others): (Vec<&str>, Vec<&str>) =
        hosts.iter().map(|host| host.trim_matches(['[', ']'])).partition(|host| *host == "::");
    for host in all.iter().chain(&others) {
        let addresses: Vec<SocketAddr> = (*host, port).to_socket_addrs()?.collect();
        let listener = match TcpListener::bind(addresses.as_slice()) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && !all.contains(host)
                    && listeners
                        .first()
                        .filter(|_| !all.is_empty())
                        .is_some_and(|all| addresses.iter().all(|address| is_within(all, address.ip()))) =>
            {
                continue;
            }
            listener => listener?,
        };
        listener.set_nonblocking(true)?;
        port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    match listeners.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "no address is given")),
        false => Ok(listeners),
    }
}

/// Return the service of one connection. It counts requests under way, and tells handlers the
/// address.
fn answering(
    router: TowerToHyperService<Router>,
    own: Connection,
    address: Address,
) -> impl Service<Request<Incoming>, Response = Response<Sending>, Error = Infallible, Future: Send> {
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(address);
        let under_way = own.begin();
        let answer = router.call(request.map(|body| own.receive(body)));
        async move { Ok(answer.await?.map(|body| Sending { body, under_way })) }
    })
}

/// Accept a connection at one of the addresses when there is room for one. Return it with the
/// address of its client.
async fn accept(
    listeners: &[tokio::net::TcpListener],
    open: &Connections,
) -> io::Result<(tokio::net::TcpStream, Address)> {
    open.room().await;
    let accepted = poll_fn(|cx| {
        let mut all = listeners.iter().map(|listener| listener.poll_accept(cx));
        all.find(Poll::is_ready).unwrap_or(Poll::Pending)
    });
    let (stream, peer) = accepted.await?;
    // Pieces of a stream are small, and should not wait for each other.
    stream.set_nodelay(true)?;
    Ok((stream, Address::new(peer.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beside_all_of_them_are_taken() {
        let bound = |hosts: &[&str]| bind(&hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), 0);
        if bound(&["::"]).is_err() {
            return; // A machine without IPv6.
        }
        for beside in ["0.0.0.0", "127.0.0.1", "localhost", "[::1]"] {
            assert!(bound(&[beside, "::"]).is_ok(), "{beside}");
        }
        assert!(bound(&["::", "203.0.113.1"]).is_err(), "an address of another machine");
    }
}
