"""GPT-2 with 124 million parameters, 1,024 tokens, AdamW: a training step as users write it."""

from __future__ import annotations

from typing import Any

LAYERS, WIDTH, HEADS, WORDS, TOKENS = 12, 768, 12, 50257, 1024


def arguments(batch: int = 8) -> Any:
    """Weights and the optimizer's state in float32, and the tokens."""
    import jax
    import jax.numpy as jnp

    sides = {
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
        "norm1": (WIDTH,),
        "norm2": (WIDTH,),
    }
    params: Any = {
        f"layer{number}": {name: jnp.zeros(side) for name, side in sides.items()} for number in range(LAYERS)
    }
    params.update(words=jnp.zeros((WORDS, WIDTH)), places=jnp.zeros((TOKENS, WIDTH)), norm=jnp.zeros((WIDTH,)))
    mu, nu = (jax.tree_util.tree_map(jnp.zeros_like, params) for _ in range(2))
    return {
        "state": {"params": params, "opt_state": {"mu": mu, "nu": nu}},
        "tokens": jnp.zeros((batch, TOKENS), jnp.int32),
    }


def step(state: Any, tokens: Any) -> Any:
    """A step of AdamW."""
    import jax

    loss_value, gradients = jax.value_and_grad(loss)(state["params"], tokens)

    def updated(weight: Any, gradient: Any, mu: Any, nu: Any) -> Any:
        mu, nu = 0.9 * mu + 0.1 * gradient, 0.95 * nu + 0.05 * gradient**2
        return weight - 3e-4 * (mu / (nu**0.5 + 1e-8) + 0.1 * weight), mu, nu

    old = state["opt_state"]
    flat, tree = jax.tree_util.tree_flatten(state["params"])
    leaves = [jax.tree_util.tree_leaves(one) for one in (gradients, old["mu"], old["nu"])]
    done = [updated(*one) for one in zip(flat, *leaves, strict=True)]
    params, mu, nu = (jax.tree_util.tree_unflatten(tree, [one[n] for one in done]) for n in range(3))
    return {"params": params, "opt_state": {"mu": mu, "nu": nu}}, loss_value


def loss(params: Any, tokens: Any) -> Any:
    import jax
    import jax.numpy as jnp

    x = (params["words"][tokens] + params["places"]).astype(jnp.bfloat16)
    mask = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
    for number in range(LAYERS):
        layer = jax.tree_util.tree_map(lambda one: one.astype(jnp.bfloat16), params[f"layer{number}"])
        q, k, v = (
            one.reshape(*one.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)
            for one in jnp.split(_norm(x, layer["norm1"]) @ layer["qkv"], 3, -1)
        )
        scores = jnp.where(mask, (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) / 8.0, -1e9)
        mixed = (jax.nn.softmax(scores).astype(jnp.bfloat16) @ v).transpose(0, 2, 1, 3)
        x = x + mixed.reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(_norm(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
    logits = (_norm(x, params["norm"].astype(jnp.bfloat16)) @ params["words"].T.astype(jnp.bfloat16)).astype(
        jnp.float32
    )
    said = jax.nn.log_softmax(logits[:, :-1])
    return -jnp.take_along_axis(said, tokens[:, 1:, None], -1).mean()


def _norm(x: Any, scale: Any) -> Any:
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    wide = (wide - wide.mean(-1, keepdims=True)) / jnp.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * (1 + scale)
