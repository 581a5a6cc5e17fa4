//! Decoding allocates nothing: preparing, storing and committing work in buffers that are there
//! already.

use backstitch_core::cell::CellType;
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Batch, Error, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId,
    StateTensor, Token, Window,
};
use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn hybrid() -> Result<Memory, Error> {
    let layer =
        AttentionLayer { n_head_kv: 2, d_k: 8, d_v: 8, window: Some(Window::Sliding(50)), rope: None };
    let recurrent = vec![StateTensor { len: 8, input: 4 }];
    let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), recurrent }];
    let (k_type, v_type) = (CellType::F16, CellType::BF16);
    Memory::new(
        &layers,
        &Params::default()
            .n_ctx(2048)
            .n_seq_max(4)
            .n_batch(256)
            .k_type(k_type)
            .v_type(v_type)
            .rollback(RollbackParams::default()),
    )
}

fn decode(memory: &mut Memory, batch: &Batch, n_ubatch: usize) -> Result<(), Error> {
    let mut plan = memory.prepare(batch, n_ubatch)?;
    while let Some(mut ubatch) = plan.next_ubatch() {
        let n_values = ubatch.n_tokens() * 16;
        let rows = [0.25; 256 * 16];
        if let Some(mut store) = ubatch.store(0) {
            store.put(&rows[..n_values], &rows[..n_values])?;
        }
        if let Some(states) = ubatch.states(0, 0) {
            states.segments().for_each(|run| states.states[run.write as usize * 8] = run.end as f32);
        }
        let seen = ubatch.attention(0).map_or(0, |view| view.visible().len());
        assert_eq!(seen, ubatch.n_tokens());
    }
    plan.commit()
}

/// A memory works on its caller's thread alone, which is the one that is counted.
#[test]
fn decoding_allocates_nothing_once_a_memory_is_made() -> Result<(), Error> {
    let mut memory = hybrid()?;
    let mut batch = Batch::new();
    let fill = |batch: &mut Batch, seqs: &[u32], from: i32, n: i32| {
        batch.clear();
        for pos in from..from + n {
            for &seq in seqs {
                batch.push(Token(pos as u32), Pos(pos), &[SeqId(seq)], false);
            }
        }
    };
    // The batch is the caller's: it grows to its largest once.
    fill(&mut batch, &[0, 1, 2], 0, 80);
    let (result, tally) = ALLOCATOR.during_here(|| {
        decode(&mut memory, &batch, 64)?;
        // Forks, one token at a time across block borders, and plans that are dropped.
        memory.seq_cp(SeqId(2), SeqId(3), Pos::ZERO..Pos::MAX)?;
        for pos in 80..400 {
            fill(&mut batch, &[0, 1, 2, 3], pos, 1);
            drop(memory.prepare(&batch, 3)?);
            decode(&mut memory, &batch, 64)?;
        }
        Ok::<_, Error>(())
    });
    result?;
    assert_eq!(tally.allocations, 0, "{tally:?}");
    Ok(())
}
