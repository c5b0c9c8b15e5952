"""The options of onnxruntime that definitions may use wherever they come from.

Others name libraries, compiled models and caches, which are machine code, files that are written, or addresses in
memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipelines.harmless import Harmless

_OTHERS: Final = "other options of onnxruntime may load machine code, and read or write files"

SESSION_OPTIONS: Final = Harmless(
    frozenset(
        {
            "mlas.enable_gemm_fastmath_arm64_bfloat16",
            "optimization.enable_cast_chain_elimination",
            "optimization.enable_gelu_approximation",
            "session.allow_released_opsets_only",
            "session.disable_aot_function_inlining",
            "session.disable_cpu_ep_fallback",
            "session.disable_double_qdq_remover",
            "session.disable_prepacking",
            "session.disable_quant_qdq",
            "session.dynamic_block_base",
            "session.enable_dq_matmulnbits_fusion",
            "session.enable_quant_qdq_cleanup",
            "session.force_spinning_stop",
            "session.inter_op.allow_spinning",
            "session.intra_op.allow_spinning",
            "session.intra_op_thread_affinities",
            "session.load_model_format",
            "session.qdq_matmulnbits_accuracy_level",
            "session.qdqisint8allowed",
            "session.set_denormal_as_zero",
            "session.strict_shape_type_inference",
            "session.use_device_allocator_for_initializers",
            "session.use_env_allocators",
        }
    ),
    _OTHERS,
)
"""The entries of a session's configuration."""

PROVIDER_OPTIONS: Final = Harmless(
    frozenset(
        {
            # CUDA, ROCm, DirectML
            "arena_extend_strategy",
            "cudnn_conv1d_pad_to_nc1d",
            "cudnn_conv_algo_search",
            "cudnn_conv_use_max_workspace",
            "device_id",
            "do_copy_in_default_stream",
            "enable_cuda_graph",
            "enable_skip_layer_norm_strict_mode",
            "fuse_conv_bias",
            "gpu_mem_limit",
            "performance_preference",
            "prefer_nhwc",
            "sdpa_kernel",
            "tunable_op_enable",
            "tunable_op_max_tuning_duration_ms",
            "tunable_op_tuning_enable",
            "use_ep_level_unified_stream",
            "use_tf32",
            # TensorRT: not its caches, which hold machine code, nor dumps
            "trt_auxiliary_streams",
            "trt_bf16_enable",
            "trt_build_heuristics_enable",
            "trt_builder_optimization_level",
            "trt_context_memory_sharing_enable",
            "trt_cuda_graph_enable",
            "trt_detailed_build_log",
            "trt_dla_core",
            "trt_dla_enable",
            "trt_force_sequential_engine_build",
            "trt_fp16_enable",
            "trt_int8_enable",
            "trt_layer_norm_fp32_fallback",
            "trt_max_partition_iterations",
            "trt_max_workspace_size",
            "trt_min_subgraph_size",
            "trt_profile_max_shapes",
            "trt_profile_min_shapes",
            "trt_profile_opt_shapes",
            "trt_sparsity_enable",
            # MIGraphX
            "migraphx_bf16_enable",
            "migraphx_exhaustive_tune",
            "migraphx_fp16_enable",
            "migraphx_fp8_enable",
            # OpenVINO
            "device_type",
            "disable_dynamic_shapes",
            "enable_opencl_throttling",
            "model_priority",
            "num_of_threads",
            "num_streams",
            "precision",
            # CoreML
            "AllowLowPrecisionAccumulationOnGPU",
            "EnableOnSubgraphs",
            "MLComputeUnits",
            "ModelFormat",
            "RequireStaticInputShapes",
            "SpecializationStrategy",
            # The CPU and XNNPACK
            "intra_op_num_threads",
            "use_arena",
        }
    ),
    _OTHERS,
)
"""The options of one execution provider."""

PROVIDERS: Final = replace(PROVIDER_OPTIONS, inside=2)
"""The same in a list of providers, each a name or `{name: options}`."""
