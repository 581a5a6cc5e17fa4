//! Open connections: how many there may be, and whose give way when there are too many.
//!
//! A connection is *idle* while no request of it is under way: it has sent nothing yet, half a
//! header, or waits for the next request. Idle connections cost a client nothing, so they are the
//! first ones to give way, the oldest first. If there are none, those give way whose client still
//! sends the body of a request: half a body costs hardly more.

use super::client::Address;
use axum::body::{Body, Bytes};
use core::pin::Pin;
use core::task::{Context, Poll};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// A connection was closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    n_before: u64,
    /// The connections by age.
    all: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    address: Address,
    under_way: Arc<Counts>,
    close: Arc<Notify>,
}

/// The requests of a connection.
#[derive(Debug, Default)]
struct Counts {
    /// Those whose answers are not sent.
    n_requests: AtomicUsize,
    /// Those whose bodies have not come.
    n_receiving: AtomicUsize,
}

/// The connections that may give way.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Idle,
    /// The client still sends the body of a request.
    Receiving,
}

impl Entry {
    fn is(&self, kind: Kind) -> bool {
        match kind {
            Kind::Idle => self.under_way.n_requests.load(Ordering::Relaxed) == 0,
            Kind::Receiving => self.under_way.n_receiving.load(Ordering::Relaxed) > 0,
        }
    }
}

impl Open {
    fn n_of(&self, address: Address) -> usize {
        self.all.values().filter(|entry| entry.address == address).count()
    }

    /// Close the oldest connection of a kind at an address. Return false if there is none.
    fn close(&mut self, kind: Kind, address: Address) -> bool {
        let oldest = self.all.iter().find(|(_, entry)| entry.is(kind) && entry.address == address);
        let Some(entry) = oldest.map(|(&id, _)| id).and_then(|id| self.all.remove(&id)) else {
            return false;
        };
        entry.close.notify_one();
        true
    }

    /// Close a connection at the address that has the most of a kind. Return false if there is none
    /// of the kind.
    fn close_of_most(&mut self, kind: Kind) -> bool {
        let mut counts: HashMap<Address, usize> = HashMap::new();
        for entry in self.all.values().filter(|entry| entry.is(kind)) {
            *counts.entry(entry.address).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|&(_, n)| n);
        most.is_some_and(|(address, _)| self.close(kind, address))
    }
}

impl Connections {
    /// Make an empty table for `most` connections.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Connections { most: most.max(1), open: Mutex::default(), closed: Notify::new() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the most connections of an address: half of all, or three quarters for this machine,
    /// where a proxy for many clients may stand.
    fn share(&self, address: Address) -> usize {
        let share = if address.is_loopback() { self.most - self.most / 4 } else { self.most - self.most / 2 };
        share.max(1)
    }

    /// Return true if there is room for another connection. If there is none, one gives way of the
    /// address that has most of them.
    pub fn make_room(&self) -> bool {
        let mut open = self.open();
        if open.all.len() < self.most {
            return true;
        }
        [Kind::Idle, Kind::Receiving].into_iter().any(|kind| open.close_of_most(kind))
    }

    /// Wait until there is room for another connection.
    pub async fn room(&self) {
        loop {
            let closed = self.closed.notified();
            if self.make_room() {
                return;
            }
            closed.await;
        }
    }

    /// Add a connection from `address`. If the address has its share of them, one of its own gives
    /// way; `None` if none can.
    pub fn add(self: &Arc<Self>, address: Address) -> Option<Connection> {
        let mut open = self.open();
        let has_share = open.n_of(address) >= self.share(address);
        if has_share && ![Kind::Idle, Kind::Receiving].into_iter().any(|kind| open.close(kind, address)) {
            return None;
        }
        let id = open.n_before;
        open.n_before += 1;
        let (under_way, close) = (Arc::<Counts>::default(), Arc::<Notify>::default());
        open.all.insert(id, Entry { address, under_way: under_way.clone(), close: close.clone() });
        Some(Connection { table: self.clone(), id, under_way, close })
    }
}

/// A connection, in the table until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    table: Arc<Connections>,
    id: u64,
    under_way: Arc<Counts>,
    close: Arc<Notify>,
}

impl Connection {
    /// Begin a request. The connection is not idle until the result is dropped.
    pub fn begin(&self) -> UnderWay {
        self.under_way.n_requests.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.under_way.clone())
    }

    /// Receive the body of a request.
    pub fn receive<B: HttpBody>(&self, body: B) -> Receiving<B> {
        let open = (!body.is_end_stream()).then(|| {
            self.under_way.n_receiving.fetch_add(1, Ordering::Relaxed);
            OpenBody(self.under_way.clone())
        });
        Receiving { body, open }
    }

    /// Return a notice that tells the connection to give way.
    pub fn close(&self) -> Arc<Notify> {
        self.close.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.table.open().all.remove(&self.id);
        self.table.closed.notify_one();
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Counts>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.n_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request of which more may come.
#[derive(Debug)]
struct OpenBody(Arc<Counts>);

impl Drop for OpenBody {
    fn drop(&mut self) {
        self.0.n_receiving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request, which counts until all of it has come or nobody wants more of it.
#[derive(Debug)]
pub(super) struct Receiving<B = Incoming> {
    body: B,
    open: Option<OpenBody>,
}

impl<B: HttpBody + Unpin> HttpBody for Receiving<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if self.body.is_end_stream() || matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.open = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, whose request is under way until all of it is sent.
#[derive(Debug)]
pub(super) struct Sending {
    pub body: Body,
    #[expect(dead_code, reason = "ends the request when it is dropped")]
    pub under_way: UnderWay,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::convert::Infallible;
    use http_body_util::{BodyExt, Full};

    fn address(last: u8) -> Address {
        Address::new([10, 0, 0, last].into())
    }

    #[test]
    fn an_address_has_a_share_and_its_idle_connections_give_way() {
        let table = Connections::new(8);
        let all: Vec<_> = (0..8).filter_map(|_| table.add(address(1))).collect();
        assert_eq!((all.len(), table.open().all.len()), (8, 4), "the oldest gave way");
        let busy: Vec<_> = all.iter().skip(4).map(Connection::begin).collect();
        assert!(table.add(address(1)).is_none(), "none of them is idle");
        let others: Vec<_> = (0..4).filter_map(|_| table.add(address(2))).collect();
        assert_eq!(others.len(), 4);
        drop(busy);
        assert!(table.add(address(1)).is_some());
    }

    #[test]
    fn this_machine_has_the_larger_share() {
        let table = Connections::new(8);
        let local = Address::new([127, 0, 0, 1].into());
        let mut all: Vec<_> = (0..6).filter_map(|_| table.add(local)).collect();
        let busy: Vec<_> = all.iter().map(Connection::begin).collect();
        assert_eq!(busy.len(), 6);
        assert!(table.add(local).is_none());
        all.clear();
        assert!(table.open().all.is_empty());
    }

    #[test]
    fn idle_connections_give_way_where_most_of_them_are() {
        let table = Connections::new(4);
        let one = table.add(address(1)).unwrap();
        let two: Vec<_> = (0..2).map(|_| table.add(address(2)).unwrap()).collect();
        let three = table.add(address(3)).unwrap();
        assert!(table.make_room());
        let is_open = |connection: &Connection| table.open().all.contains_key(&connection.id);
        assert!(is_open(&one) && !is_open(&two[0]) && is_open(&two[1]));
        let four = table.add(address(4)).unwrap();
        let busy: Vec<_> = [&one, &two[1], &three, &four].into_iter().map(Connection::begin).collect();
        assert!(!table.make_room());
        drop(busy);
        assert!(table.make_room());
    }

    /// A body of which a part comes, without saying whether it is the last one.
    #[derive(Default)]
    struct Part {
        has_come: bool,
        is_last: bool,
    }

    impl HttpBody for Part {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let part = self.get_mut();
            let has_come = std::mem::replace(&mut part.has_come, true);
            match has_come {
                false => Poll::Ready(Some(Ok(Frame::data("part".into())))),
                true if part.is_last => Poll::Ready(None),
                true => Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn half_a_body_keeps_nobody_out() {
        let table = Connections::new(4);
        let all: Vec<_> = [1, 1, 2, 2].iter().map(|&n| table.add(address(n)).unwrap()).collect();
        let _under_way: Vec<_> = all.iter().map(Connection::begin).collect();
        let whole = all[0].receive(Full::<Bytes>::from("whole"));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "whole");
        assert!(!table.make_room(), "all have their bodies");
        let mut half = all[3].receive(Part::default());
        assert!(half.frame().await.is_some());
        assert!(table.make_room());
        let is_open = |connection: &Connection| table.open().all.contains_key(&connection.id);
        assert!(is_open(&all[0]) && is_open(&all[2]) && !is_open(&all[3]));
        let three = table.add(address(3)).unwrap();
        let _under_way = three.begin();
        let mut last = three.receive(Part { is_last: true, ..Part::default() });
        assert!(last.frame().await.is_some() && last.frame().await.is_none());
        assert!(!table.make_room(), "its body has come");
    }

    #[test]
    fn half_a_header_keeps_nobody_out() {
        let table = Connections::new(64);
        let mut held = Vec::new();
        for _ in 0..1000 {
            assert!(table.make_room());
            held.extend(table.add(address(1)));
        }
        for n in 2..30 {
            assert!(table.make_room());
            let other = table.add(address(n)).unwrap();
            assert!(table.open().all.contains_key(&other.id));
            held.push(other);
        }
    }
}
