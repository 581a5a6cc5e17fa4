//! speed
use backstitch_models::*;
use std::time::Instant;
fn clock() -> u64 { static S: std::sync::OnceLock<Instant> = std::sync::OnceLock::new(); S.get_or_init(Instant::now).elapsed().as_nanos() as u64 }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u32 = a[2].parse().unwrap();
    let depth: usize = a[3].parse().unwrap();
    let t = Instant::now();
    let model = Model::open(&a[1]).unwrap();
    println!("load {:?}, {} MiB", t.elapsed(), model.n_bytes() >> 20);
    let mut ctx = Context::new(&model, Params { n_ctx: (depth + 1024) as u32, n_threads: n, ..Params::default() }).unwrap();
    let prof = a.get(4).is_some();
    let mut x = 0x2545_f491_4f6c_dd1du64;
    let mut tok = || { x ^= x << 13; x ^= x >> 7; x ^= x << 17; Token((x % model.hparams().n_vocab as u64) as u32) };
    let s = ctx.sequence().unwrap();
    let pre: Vec<Token> = (0..depth).map(|_| tok()).collect();
    if depth > 0 { ctx.append(s, &pre).unwrap(); }
    let p: Vec<Token> = (0..512).map(|_| tok()).collect();
    if prof { ctx.profile(clock); }
    for _ in 0..3 {
        let t = Instant::now();
        ctx.append(s, &p).unwrap();
        println!("prompt {:.1} t/s", 512.0 / t.elapsed().as_secs_f64());
        ctx.rollback(s, Pos(depth as i32)).unwrap();
    }
    if prof { show(&ctx); ctx.profile(clock); }
    for _ in 0..3 {
        let t = Instant::now();
        for &k in &p[..64] { ctx.append(s, &[k]).unwrap(); }
        println!("gen {:.1} t/s", 64.0 / t.elapsed().as_secs_f64());
        ctx.rollback(s, Pos(depth as i32)).unwrap();
    }
    if prof { show(&ctx); }
}
fn show(ctx: &Context) { for r in ctx.profiled().unwrap().rows() { println!("  {:10} {:6} calls {:9.3} ms {:9.2} us each", r.name, r.calls, r.nanoseconds as f64 / 1e6, r.nanoseconds as f64 / 1e3 / r.calls as f64); } }
